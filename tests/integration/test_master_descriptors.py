"""A master without descriptors goes on with the connections that it has, and takes new ones when it can again."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import penstock
from tests.integration.conftest import Daemon, until

Connect = Callable[..., Awaitable[Any]]
Start = Callable[..., Any]
#: The kernel connects to a master that cannot accept; no process answers then.
PATIENCE_S = 2.0


async def test_a_master_without_descriptors_goes_on(start_master: Start, start_agent: Start, connect: Connect) -> None:
    master = start_master()
    agent = start_agent(master=master.addresses["listen"])
    client = await connect(agent)
    await asyncio.to_thread(until, lambda: agent.status()["master"]["linked"])
    before = resource.prlimit(master.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(master.process.pid, resource.RLIMIT_NOFILE, (4, before[1]))
    late = await asyncio.gather(*[asyncio.to_thread(_tried, master) for _ in range(5)])
    assert not any(late), "nothing new could be opened"
    os.utime(Path(penstock.__file__).parent.parent)  # Python lists it when it next looks for a module
    for _ in range(3):
        await client.call("cluster_status")
        job = (await client.call("register_job", name="j"))["job"]
        await client.call("end_job", job=job)
    resource.prlimit(master.process.pid, resource.RLIMIT_NOFILE, before)
    await asyncio.to_thread(until, lambda: _tried(master))
    await client.call("cluster_status")


def _tried(master: Daemon) -> bool:
    try:
        return bool(master.get("/healthz", PATIENCE_S))
    except OSError:
        return False
