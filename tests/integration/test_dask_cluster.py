"""Dask workers that a real agent runs in containers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed")

from distributed import Client

from penstock.engines.dask.cluster import ContainedWorker, PenstockCluster

# Dask's own, not ours: it warns of itself while it starts and stops.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
WAIT_S = 120.0


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)


async def test_workers_run_in_containers_gated_and_end_with_the_cluster(
    start_agent: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_PENSTOCK__CPU", "True")
    agent = start_agent(cores=2, memory_bytes=4 * 2**30)

    def containers(state: str) -> list[Any]:
        return [each for each in agent.status()["containers"] if each["state"] == state]

    async with (
        PenstockCluster(1, cpu_cores=0.75, memory_bytes=2**30, socket=agent.socket, asynchronous=True) as cluster,
        Client(cluster, asynchronous=True, timeout=WAIT_S) as client,
    ):
        await client.wait_for_workers(1, timeout=WAIT_S)
        assert await client.gather(client.map(pow, range(10), [2] * 10)) == [n * n for n in range(10)]
        (container,) = containers("running")
        assert container["name"] == "dask-worker 0"
        assert (container["limits"]["cpu_cores"], container["limits"]["memory_max_bytes"]) == (0.75, 2**30)
        (job,) = agent.status()["jobs"]
        assert job["name"] == f"dask {cluster.scheduler_address}"
        # What ends under a lease is told a little later.
        await until(lambda: [each["done"] for each in agent.status()["jobs"]] == [10])
        cluster.scale(2)
        await client.wait_for_workers(2, timeout=WAIT_S)
        assert {each["name"] for each in containers("running")} == {"dask-worker 0", "dask-worker 1"}
        await until(lambda: [each["connections"] for each in agent.status()["jobs"]] == [2])
    await until(lambda: not containers("running"))
    assert {each["ended"]["by"] for each in agent.status()["containers"]} <= {"exit", "cancelled", "signal"}


def test_a_promise_that_is_too_small_is_said_at_once() -> None:
    with pytest.raises(ValueError, match="too little for a Dask worker"):
        ContainedWorker("tcp://127.0.0.1:1", "w", memory_bytes=2**20)
