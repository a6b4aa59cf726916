"""Unchanged Dask scripts in processes of their own, gated by a real agent: how many tasks ran at once, by their own
records.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed")

from penstock.client import AgentClient
from penstock.wire.jobs_api import JobView
from tests.integration.conftest import MasterProcess, until

SCRIPT = Path(__file__).with_name("dask_jobs.py")
SLOTS = 2
WAIT_S = 150.0
PATIENCE_S = 0.5


class Script:
    """A running script; a test can wait for its output."""

    def __init__(self, job: str, spans: Path, stop: Path, environment: dict[str, str]) -> None:
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._over = False
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), job, str(spans), str(stop)],
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()

    @property
    def output(self) -> str:
        return "".join(self._lines)

    def has_printed(self, text: str) -> bool:
        """Return whether the text is in the output; fail where the script ended without it."""
        over = self._over
        assert text in self.output or not over, self.output
        return text in self.output

    def wait_for(self, text: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._over or text in self.output, WAIT_S)
        assert text in self.output, self.output

    def finish(self) -> str:
        """Have the cluster closed once its job is done, and return the script's output."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the script has failed: the assertion below shows its output
            self.process.stdin.write("\n")
            self.process.stdin.close()
        assert self.process.wait(WAIT_S) == 0, self.output
        self._reader.join(WAIT_S)
        assert "finished" in self.output
        return self.output


@contextlib.contextmanager
def scripts(*jobs: str, spans: Path, socket: Path | None, target: str = "0.6") -> Iterator[list[Script]]:
    environment = {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": target,
    }
    if socket is not None:
        environment |= {
            "DASK_DISTRIBUTED__WORKER__PRELOAD": '["penstock.engines.dask.preload"]',
            "DASK_PENSTOCK__SOCKET": str(socket),
            "DASK_PENSTOCK__CPU": "True",
            "DASK_PENSTOCK__PATIENCE_S": str(PATIENCE_S),
        }
    started = [Script(job, spans, spans.with_name("stop"), environment) for job in jobs]
    try:
        yield started
    finally:
        for script in started:
            if script.process.poll() is None:
                script.process.terminate()
                script.process.wait(30)


def read_spans(path: Path) -> list[tuple[int, int]]:
    lines = path.read_text().splitlines()
    return [(int(began), int(ended)) for began, ended in (line.split() for line in lines)]


def most_at_once(spans: list[tuple[int, int]]) -> int:
    """How many of these were under way at the busiest moment."""
    events = sorted([(ended, -1) for _, ended in spans] + [(began, 1) for began, _ in spans])
    running = most = 0
    for _, change in events:
        running += change
        most = max(most, running)
    return most


def test_how_many_ran_at_once_is_counted_right() -> None:
    assert most_at_once([(0, 10), (10, 20), (20, 30)]) == 1
    assert most_at_once([(0, 10), (5, 20), (9, 30)]) == 3


def test_two_clusters_never_run_more_tasks_than_there_are_slots(start_agent: Any, tmp_path: Path) -> None:
    agent = start_agent(cores=SLOTS)
    spans = tmp_path / "spans"
    with scripts("mixed", "killed", spans=spans, socket=agent.socket) as running:
        names: set[str] = set()

        def shared() -> bool:
            jobs = agent.status()["jobs"]
            names.update(job["name"] for job in jobs)
            return all(script.has_printed("worked") for script in running) and [job["connections"] for job in jobs] == [
                2,
                2,
            ]

        # A worker whose agent is slow to answer begins in a job of its own, and joins the cluster's job later.
        until(shared, "the workers of a cluster do not share a job")
        outputs = [script.finish() for script in running]
    assert names == {SCRIPT.name}, "the jobs of a LocalCluster have the name of its program"
    assert not any("not gated:" in output or "without grants" in output for output in outputs), outputs
    found = read_spans(spans)
    assert len(found) >= 40 + 6 + 4 * 6 + 6 + 4 + 61
    assert most_at_once(found) == SLOTS
    until(lambda: not agent.status()["jobs"], "the jobs have not ended")
    assert agent.status()["kinds"]["cpu"]["running"] == 0


def test_joins_and_spilling_stay_within_the_slots_and_the_closed_cluster_is_one_job_that_succeeded(
    start_agent: Any, master: MasterProcess, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("dask.dataframe")
    agent = start_agent(cores=SLOTS, master=master.listen)
    spans = tmp_path / "spans"
    with scripts("joined", spans=spans, socket=agent.socket, target="0.0005") as running:
        running[0].wait_for("worked")
        # A worker that closes before it has joined the cluster's job leaves a job of its own in the list.
        until(lambda: [job["connections"] for job in agent.status()["jobs"]] == [2], "the workers do not share a job")
        output = running[0].finish()
    assert "not gated:" not in output, output
    assert "without grants" not in output, output
    found = read_spans(spans)
    assert len(found) >= 8 + 7 + 7
    assert most_at_once(found) == SLOTS, "of the four threads of the cluster"
    kinds = agent.status()["kinds"]
    assert kinds["network"]["slot_seconds"] > 0
    assert kinds["disk"]["slot_seconds"] > 0
    until(lambda: not agent.status()["jobs"], "the jobs have not ended")
    kinds = agent.status()["kinds"]
    assert [kinds[kind]["running"] for kind in ("cpu", "network", "disk")] == [0, 0, 0]

    async def listed() -> list[JobView]:
        async with await AgentClient.connect(agent.socket, "test") as client:
            return await client.jobs.list()

    until(lambda: all(job.state == "ended" for job in asyncio.run(listed())), "the master knows of no end")
    jobs = asyncio.run(listed())
    assert [job.outcome for job in jobs] == ["succeeded"], jobs


def test_killing_the_agent_opens_the_gates_and_its_return_shuts_them(start_agent: Any, tmp_path: Path) -> None:
    agent = start_agent(cores=SLOTS)
    spans = tmp_path / "spans"
    with scripts("stream", "stream", spans=spans, socket=agent.socket) as running:
        for script in running:
            script.wait_for("streaming")
        until(lambda: sum(job["done"] for job in agent.status()["jobs"]) > 60, "nothing is granted")
        before = time.monotonic_ns()
        agent.kill()
        until(lambda: most_at_once([span for span in read_spans(spans) if span[0] > before]) > SLOTS, "gates stay shut")
        again = start_agent(cores=SLOTS)
        until(lambda: sum(job["connections"] for job in again.status()["jobs"]) == 4, "not all workers are back")
        until(lambda: [job["connections"] for job in again.status()["jobs"]] == [2, 2], "not one job for each cluster")
        back = time.monotonic_ns()
        until(lambda: sum(job["done"] for job in again.status()["jobs"]) > 100, "nothing is granted again")
        after = time.monotonic_ns()
        spans.with_name("stop").touch()
        outputs = [script.finish() for script in running]
    found = read_spans(spans)
    assert most_at_once([span for span in found if span[1] < before]) == SLOTS
    # Tasks that began without a grant have ended 0.02 s later; a second is much for a busy machine.
    settled = [span for span in found if back + 10**9 < span[0] and span[1] < after]
    assert most_at_once(settled) <= SLOTS
    assert all(output.count("without grants") <= 2 for output in outputs), outputs  # one for each worker process
    assert any("without grants" in output for output in outputs), outputs


def test_without_an_agent_the_script_runs_as_ever(tmp_path: Path) -> None:
    """Without an agent more tasks run at once than the other tests allow, so their measurement can fail."""
    spans = tmp_path / "spans"
    with scripts("mixed,killed", spans=spans, socket=tmp_path / "nobody.sock") as running:
        output = running[0].finish()
    found = read_spans(spans)
    assert len(found) >= 40 + 6 + 4 * 6 + 6 + 4 + 61
    assert most_at_once(found) > SLOTS
    assert "without grants" in output
