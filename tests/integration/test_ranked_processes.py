"""Processes that no container holds, ranked with their jobs: by nice values, on a host without a cpu controller."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from agent.cgroup_root import cgroup2_mount
from agent.core import rank_weights
from agent.nice import tree
from penstock.client import AgentClient
from penstock.wire.errors import RpcError
from tests.integration.conftest import until

_MOUNT = cgroup2_mount()
WEIGHED = _MOUNT is not None and "cpu" in (_MOUNT / "cgroup.controllers").read_text().split()
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root lowers nice values"),
    pytest.mark.skipif(WEIGHED, reason="cgroups are weighed here: tests/kernel/test_ranks.py"),
]
WAIT_S = 60.0
#: It has a child, lends itself for a job, and goes on when the job is over.
SCRIPT = """
import subprocess, sys
from pathlib import Path
from penstock.client.gate import Gate

child = subprocess.Popen(["sleep", "1000"])
gate = Gate(sys.argv[2], socket=Path(sys.argv[1]), patience_s=60, rank=True)
gate.wait_connected(60)
print(child.pid, gate.job, flush=True)
for line in sys.stdin:
    if line == "over\\n":
        gate.close(done=True)
        gate.wait_closed(60)
    print("went on", flush=True)
child.kill()
"""


class Lender:
    """A process that has registered a job, and its child."""

    def __init__(self, socket: Path, name: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(socket), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        child, self.job = self.line().split()
        self.pids = (self.process.pid, int(child))

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def ask(self, what: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return self.line()

    def nice(self) -> set[int]:
        """The nice values of all threads of both."""
        return set(nice_of(list(self.pids)))

    def end(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(WAIT_S)
        self.process.stdout.close()


@pytest.fixture
def lender() -> Iterator[Callable[[Path, str], Lender]]:
    with ExitStack() as ends:

        def make(socket: Path, name: str) -> Lender:
            made = Lender(socket, name)
            ends.callback(made.end)
            return made

        yield make


def of_two(own: int, rank: int) -> int:
    """Return the nice value of the first (0) or second of two jobs, whose processes had their own before."""
    value = rank_weights.nice_of(rank, 2)
    return max(own, value) if own > 0 else value


def containers(agent: Any) -> dict[str, dict[str, Any]]:
    """By job, those that run."""
    return {each["job"]: each for each in agent.status()["containers"] if each["ended"] is None and each["pid"]}


def test_processes_are_ranked_while_their_jobs_last_and_go_on_after_them(start_agent: Any, lender: Any) -> None:
    agent = start_agent()
    own = os.getpriority(os.PRIO_PROCESS, 0)
    first, second = lender(agent.socket, "first"), lender(agent.socket, "second")
    until(lambda: len(containers(agent)) == 2, "they are not taken in")
    ranked = containers(agent)
    assert [ranked[each.job]["pid"] for each in (first, second)] == [each.pids[0] for each in (first, second)]
    until(lambda: second.nice() == {of_two(own, 1)}, "the second is not behind the first")
    assert first.nice() == {of_two(own, 0)}

    assert first.ask("over") == "went on\n"
    until(lambda: second.nice() == {max(own, 0)}, "the second is not the first now")
    until(lambda: list(containers(agent)) == [second.job], "the first is still in")
    assert second.ask("over") == "went on\n"
    until(lambda: not containers(agent), "the second is still in")
    assert [each.nice() for each in (first, second)] == [{own}, {own}]
    assert [each.ask("more") for each in (first, second)] == ["went on\n"] * 2
    reasons = {each["ended"]["reason"] for each in agent.status()["containers"]}
    assert reasons == {"its job is over: its processes go on"}


def test_a_restarted_agent_gives_back_the_processes_that_its_predecessor_took_in(start_agent: Any, lender: Any) -> None:
    agent = start_agent()
    own = os.getpriority(os.PRIO_PROCESS, 0)
    first, second = lender(agent.socket, "first"), lender(agent.socket, "second")
    until(lambda: len(containers(agent)) == 2, "they are not taken in")
    agent.kill()
    again = start_agent()
    until(lambda: len(containers(again)) == 2, "a restarted agent has lost them")
    until(lambda: [job["connections"] for job in again.status()["jobs"]] == [1, 1], "they did not come back")
    assert second.ask("over") == first.ask("over") == "went on\n"
    until(lambda: not containers(again), "they are still in")
    assert [each.nice() for each in (first, second)] == [{own}, {own}]


def test_an_agent_that_stops_leaves_them_as_they_were(start_agent: Any, lender: Any) -> None:
    agent = start_agent()
    own = os.getpriority(os.PRIO_PROCESS, 0)
    first, second = lender(agent.socket, "first"), lender(agent.socket, "second")
    until(lambda: first.nice() | second.nice() == {of_two(own, 0), of_two(own, 1)}, "they are not ranked")
    assert agent.stop() == 0
    assert [each.nice() for each in (first, second)] == [{own}, {own}]
    again = start_agent()
    until(lambda: set(containers(again)) == {first.job, second.job}, "they are not lent to the next one")


async def test_processes_that_cannot_be_lent(start_agent: Any) -> None:
    agent = start_agent()
    ended = await asyncio.create_subprocess_exec("true")
    await ended.wait()
    async with await AgentClient.connect(agent.socket, "test") as client:
        job = await client.register_job("x")
        for pid, why in ((agent.process.pid, "Penstock's own"), (ended.pid, f"there is no process {ended.pid}")):
            with pytest.raises(RpcError, match=why):
                await client.lend(job.id, pid)
    assert not containers(agent)


def test_all_processes_of_a_dask_cluster_have_the_rank_of_its_job(start_agent: Any, tmp_path: Path) -> None:
    """Unchanged scripts, with one line of configuration: client, scheduler, nannies and workers."""
    pytest.importorskip("distributed")
    from tests.integration.test_dask import scripts

    agent = start_agent()
    own = os.getpriority(os.PRIO_PROCESS, 0)
    with scripts("stream", "stream", spans=tmp_path / "spans", socket=agent.socket) as running:
        for script in running:
            script.wait_for("streaming")
        until(lambda: [job["connections"] for job in agent.status()["jobs"]] == [2, 2], "not one job for each cluster")
        until(lambda: len(containers(agent)) == 2, "not one container for each")
        ranked = containers(agent)
        assert set(ranked) == {job["job"] for job in agent.status()["jobs"]}
        assert {each["pid"] for each in ranked.values()} == {script.process.pid for script in running}

        def as_ranked() -> bool:
            found = containers(agent).values()
            return {nice_of(tree(each["pid"])) for each in found} == {(of_two(own, 0),), (of_two(own, 1),)}

        until(as_ranked, "one cluster is not behind the other")
        assert all(len(tree(each["pid"])) > 2 for each in ranked.values()), "there are workers"
        (tmp_path / "stop").touch()
        outputs = [script.finish() for script in running]
    assert not any("not ranked" in output or "without grants" in output for output in outputs), outputs
    until(lambda: not containers(agent), "they are still in")


def nice_of(pids: list[int]) -> tuple[int, ...]:
    """The nice values of all their threads, each once."""
    found = set()
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):  # it, or a thread of it, ended meanwhile
            for thread in Path(f"/proc/{pid}/task").iterdir():
                found.add(os.getpriority(os.PRIO_PROCESS, int(thread.name)))
    return tuple(sorted(found))
