"""Dask workers of real agents: in containers, and on two hosts as one job."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed")

from distributed import Client, Scheduler, Worker

from penstock.engines.dask.cluster import ContainedWorker, PenstockCluster
from penstock.engines.dask.plugin import PenstockWorkerPlugin
from tests.integration.conftest import MasterProcess, agents, until

# Dask's own, not ours: it warns of itself while it starts and stops.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}Warning") for kind in ("Deprecation", "Future", "Resource", "User")
]
WAIT_S = 120.0


async def test_workers_run_in_containers_gated_and_end_with_the_cluster(
    start_agent: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_PENSTOCK__CPU", "True")
    monkeypatch.setattr("penstock.engines.dask.cluster.program_of", lambda: "report.py")
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
        assert job["name"] == "report.py", "the program's name"
        # Ends under a lease are reported a little later.
        await asyncio.to_thread(until, lambda: [each["done"] for each in agent.status()["jobs"]] == [10])
        cluster.scale(2)
        await client.wait_for_workers(2, timeout=WAIT_S)
        assert {each["name"] for each in containers("running")} == {"dask-worker 0", "dask-worker 1"}
        await asyncio.to_thread(until, lambda: [each["connections"] for each in agent.status()["jobs"]] == [2])
    await asyncio.to_thread(until, lambda: not containers("running"))
    assert {each["ended"]["by"] for each in agent.status()["containers"]} <= {"exit", "cancelled", "signal"}


def test_a_promise_that_is_too_small_is_reported_at_once() -> None:
    with pytest.raises(ValueError, match="too little for a Dask worker"):
        ContainedWorker("tcp://127.0.0.1:1", "w", memory_bytes=2**20)


def test_a_variable_that_is_not_utf8_is_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LEGACY", os.fsdecode(b"caf\xe9"))
    monkeypatch.setenv("MODERN", "café")
    env = ContainedWorker("tcp://127.0.0.1:1", "w").spec.env
    assert "LEGACY" not in env and env["MODERN"] == "café"
    assert caplog.messages == ["left out of the environment, as not UTF-8: LEGACY"]


async def test_workers_of_two_hosts_share_a_job(
    start_agent: Callable[..., Any], master: MasterProcess, tmp_path: Path
) -> None:
    """Two agents under one master: the cluster is one job there."""
    hosts = await agents(start_agent, master, tmp_path, "alpha", "beta", cores=2)

    def jobs() -> list[set[str]]:
        return [{job["job"] for job in agent.status()["jobs"]} for agent in hosts]

    async with (
        Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0") as scheduler,
        contextlib.AsyncExitStack() as stack,
    ):
        workers = []
        for agent in (hosts[0], hosts[1], hosts[1]):
            plugin = PenstockWorkerPlugin(socket=str(agent.socket), cpu=True)
            worker = Worker(scheduler.address, host="127.0.0.1", nthreads=1, plugins=[plugin])
            workers.append(await stack.enter_async_context(worker))
        client = await stack.enter_async_context(Client(scheduler.address, asynchronous=True))
        await asyncio.to_thread(until, lambda: jobs()[0] == jobs()[1] and len(jobs()[0]) == 1)
        assert len(master.status()["jobs"]) == 1
        futures = [client.submit(pow, n, 2, workers=[workers[n % 3].address], pure=False) for n in range(12)]
        assert await client.gather(futures) == [n**2 for n in range(12)]
        await asyncio.to_thread(
            until, lambda: [sum(job["done"] for job in agent.status()["jobs"]) for agent in hosts] == [4, 8]
        )
        assert len({job["priority"] for agent in hosts for job in agent.status()["jobs"]}) == 1
    await asyncio.to_thread(until, lambda: jobs() == [set(), set()])
