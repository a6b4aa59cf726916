"""One order on all nodes at once: the same job is the first by the kernel's weights on both, whenever it changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.cgroup_root import own_cgroup
from penstock.client import AgentClient
from penstock.wire.jobs_api import JobsOrdered
from tests.integration.conftest import MasterProcess, agents, agents_in, command, until

LIMIT_S = 60.0
#: Nothing is ranked at a sample while the order changes: it has to be the master's word that does it.
SAMPLE_S = 20.0


@pytest.fixture
def start_agent(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    with agents_in(tmp_path) as make:
        yield make


@pytest.fixture
def master(tmp_path: Path) -> Iterator[MasterProcess]:
    running = MasterProcess(tmp_path)
    running.start()
    yield running
    assert running.stop() == 0, running.running.log.read_text()


async def test_a_job_is_the_first_on_all_nodes_at_once(
    start_agent: Callable[..., Any], master: MasterProcess, tmp_path: Path
) -> None:
    nodes = await agents(start_agent, master, tmp_path, "alpha", "beta", sample_interval_s=SAMPLE_S)
    async with await AgentClient.connect(nodes[0].socket, "test") as client:
        jobs = [await client.register_job(name, memory_bytes=100_000_000) for name in ("one", "two", "three")]
        for job in jobs:
            await asyncio.wait_for(job.admitted(), LIMIT_S)
            await job.place("s", [command(node, "sleep", "1000", nodes=(node,)) for node in ("alpha", "beta")])
        everywhere = {job.id for job in jobs}
        weights = [await asyncio.to_thread(until, lambda node=node: weight_files(node, everywhere)) for node in nodes]
        for first in (2, 1, 0, 2, 0):
            wanted = [jobs[first].id]
            asked = time.monotonic()
            assert await client.jobs.order(wanted) == JobsOrdered(jobs=wanted, of_all=True)
            times = await asyncio.gather(*(asyncio.to_thread(when_first, files, jobs[first].id) for files in weights))
            assert max(times) - asked < SAMPLE_S / 2, "it was a sample that did it"
            assert max(times) - min(times) < SAMPLE_S / 10, "for long it was the first on one and not on the other"
            orders = until(lambda: same_order(weights), "the others are in another order on the other")
            assert orders[0] == wanted[0]


def weight_files(node: Any, jobs: set[str]) -> dict[str, Path] | None:
    """Job → the weight of its container on a node, once all of them run there."""
    running = [each for each in node.status()["containers"] if each["state"] == "running"]
    cgroups = {each["job"]: own_cgroup(Path("/sys/fs/cgroup"), Path(f"/proc/{each['pid']}/cgroup")) for each in running}
    return {job: path / "cpu.weight" for job, path in cgroups.items()} if set(cgroups) == jobs else None


def by_weight(files: dict[str, Path]) -> list[str]:
    """The jobs in the kernel's order, the heaviest first; none while two have the same weight."""
    weights = {job: int(file.read_text()) for job, file in files.items()}
    return sorted(weights, key=lambda job: -weights[job]) if len({*weights.values()}) == len(weights) else []


def when_first(files: dict[str, Path], job: str) -> float:
    """The monotonic time at which a job is seen to have the largest weight."""
    until(lambda: by_weight(files)[:1] == [job])
    return time.monotonic()


def same_order(nodes: list[dict[str, Path]]) -> list[str]:
    """The order of the kernel on all nodes; none while it differs."""
    first, *others = map(by_weight, nodes)
    return first if all(other == first for other in others) else []
