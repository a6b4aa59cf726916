"""A dataset on gated Dask workers is one job: the workers work for the job that the master admitted and placed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import pytest

pytest.importorskip("distributed")

from distributed import Client, LocalCluster

from penstock.dataset import Dataset
from penstock.engines.dask.plugin import PenstockSchedulerPlugin
from penstock.engines.dask_dataset import Options, run
from tests.integration.conftest import MasterProcess, until
from tests.integration.test_dataset_on_dask import placing

# Dask's own, not ours: it warns of itself while it starts and stops.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}Warning") for kind in ("Deprecation", "Future", "Resource", "User")
]
WAIT_S = 120.0


@contextmanager
def gated(socket: Path, *, cpu: bool = False) -> Iterator[Client]:
    """Two workers of two threads, in this process, behind the gate of an agent."""
    with (
        dask.config.set({"penstock.job": "plain"}),
        LocalCluster(n_workers=2, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.register_plugin(PenstockSchedulerPlugin(socket=str(socket), cpu=cpu))
        yield client


def test_monotasks_are_asked_for_in_the_name_of_the_job_that_was_placed(tmp_path: Path) -> None:
    with placing(tmp_path, slots=4) as fake, gated(fake.socket) as client:
        before = len(fake.called("submit"))
        numbers = Dataset.from_items(range(800), 4).map(lambda item: (item % 3, item))
        options = Options(name="places", socket=fake.socket, nodes={"fake": list(client.nthreads())})
        assert run(numbers.group_by_key(3).count(), client, options) == 3
        placed = {request.task for asked in fake.called("place") for request in asked.tasks}
        [job] = {asked.job for asked in fake.called("place")}
        submitted = [(asked.job, one) for asked in fake.called("submit")[before:] for one in asked.monotasks]
        assert {one.task for name, one in submitted if name == job} == placed
        assert sum(one.kind == "cpu" for name, one in submitted if name == job) == len(placed)
        # the last transfer gathers the result
        assert {one.kind for name, one in submitted if name != job} <= {"network"}
        told = [asked.stages for asked in fake.called("progress") if asked.job == job]
        assert [stage.done for stage in told[0]] == [0, 0], "before anything is placed"
        assert [(stage.tasks, stage.done) for stage in told[-1]] == [(4, 4), (3, 3)], "and when all is done"


class Hold:
    """Holds the tasks until the test has looked. In this process and not in the function, which is pickled."""

    begun = threading.Event()
    release = threading.Event()


def held(item: int) -> int:
    Hold.begun.set()
    assert Hold.release.wait(WAIT_S)
    return item


def progress(master: MasterProcess, name: str) -> list[dict[str, Any]]:
    """Return the progress of stages that the job of this name has reported to the master."""
    [job] = [job for job in master.status()["jobs"].values() if job["name"] == name]
    return list(job["progress"])


def test_at_a_real_master_it_is_one_job(start_agent: Callable[..., Any], master: MasterProcess) -> None:
    agent = start_agent(node="alpha", master=master.listen, cores=2)
    Hold.begun.clear()
    Hold.release.clear()

    def jobs() -> dict[str, Any]:
        return {job["name"]: job for job in agent.status()["jobs"]}

    with gated(agent.socket, cpu=True) as client, ThreadPoolExecutor() as threads:
        try:
            plain = client.submit(pow, 2, 5)
            assert plain.result() == 32
            until(lambda: jobs()["plain"]["done"] == 1, "the plain task is not counted")
            pairs = Dataset.from_items(range(8), 4).map(held).map(lambda item: (item % 2, item))
            options = Options(name="held", socket=agent.socket, nodes={"alpha": list(client.nthreads())})
            found = threads.submit(run, pairs.group_by_key(2).count(), client, options)
            assert Hold.begun.wait(WAIT_S)
            seen = until(lambda: jobs() if jobs()["held"]["running"] == 2 else None, "nothing runs in the job's name")
            assert seen["held"]["connections"] >= 2, "the placement's and a worker's"
            ours = seen["plain"]
            assert (ours["running"], ours["queued"]) == (0, 0)
            assert not any("from_items" in stage["stage"] for stage in ours["stages"]), "told twice"
            assert {job["name"] for job in master.status()["jobs"].values()} == set(seen)
            told = until(lambda: progress(master, "held"), "how far the job is was not told")
            assert [(one["tasks"], one.get("done", 0), one.get("after", [])) for one in told] == [
                (4, 0, []), (2, 0, [told[0]["stage"]]),
            ]  # fmt: skip
            assert told[0]["usage"]["cpu"] > 0, "its monotasks' bytes"
        finally:
            Hold.release.set()
        assert found.result(WAIT_S) == 2
        until(lambda: "held" not in jobs(), "the job has not ended")
