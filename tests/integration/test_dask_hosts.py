"""A Dask cluster on two hosts, which are two agents under one master, is one job there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed")

from distributed import Client, Scheduler, Worker

from penstock.engines.dask.plugin import PenstockWorkerPlugin
from tests.integration.conftest import MasterProcess

# Dask's own, not ours: it warns of itself while it starts and stops.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
WAIT_S = 60.0


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.05)


async def test_workers_of_two_hosts_share_a_job(start_agent: Callable[..., Any], tmp_path: Path) -> None:
    master = MasterProcess(tmp_path)
    master.start()
    agents = []
    for name in ("alpha", "beta"):
        (tmp_path / name).mkdir()
        directories = {"runtime_dir": tmp_path / name / "run", "state_dir": tmp_path / name / "state"}
        agents.append(start_agent(node=name, master=master.listen, cores=2, **directories))

    def jobs() -> list[set[str]]:
        return [{job["job"] for job in agent.status()["jobs"]} for agent in agents]

    async with (
        Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0") as scheduler,
        contextlib.AsyncExitStack() as stack,
    ):
        workers = []
        for agent in (agents[0], agents[1], agents[1]):
            plugin = PenstockWorkerPlugin(socket=str(agent.socket), cpu=True)
            worker = Worker(scheduler.address, host="127.0.0.1", nthreads=1, plugins=[plugin])
            workers.append(await stack.enter_async_context(worker))
        client = await stack.enter_async_context(Client(scheduler.address, asynchronous=True))
        await until(lambda: jobs()[0] == jobs()[1] and len(jobs()[0]) == 1)
        assert len(master.status()["jobs"]) == 1
        futures = [client.submit(pow, n, 2, workers=[workers[n % 3].address], pure=False) for n in range(12)]
        assert await client.gather(futures) == [n**2 for n in range(12)]
        await until(lambda: [sum(job["done"] for job in agent.status()["jobs"]) for agent in agents] == [4, 8])
        assert len({job["priority"] for agent in agents for job in agent.status()["jobs"]}) == 1
    await until(lambda: jobs() == [set(), set()])
    assert master.stop() == 0
