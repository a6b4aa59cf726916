"""A real agent, real clients: the gain by leases, and that the first job in order does not wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.client import AgentClient, Job
from penstock.wire.agent_api import Grants


class Overheard:
    """Counts the grants that one client gets from its agent."""

    def __init__(self, client: AgentClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self.grants: list[Grants] = []
        heard = client.notified

        def notified(peer: Any, method: str, params: Any) -> None:
            if isinstance(params, Grants):
                self.grants.append(params)
            heard(peer, method, params)

        monkeypatch.setattr(client, "notified", notified)


async def run_all(job: Job, count: int) -> int:
    """So many monotasks that do nothing; the most that ran at once."""
    running = most = 0

    async def one() -> None:
        nonlocal running, most
        async with job.monotask("cpu", 1):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*(one() for _ in range(count)))
    return most


async def test_under_leases_a_grant_serves_many(
    start_agent: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = start_agent(cores=2, lease_s=0.5)
    async with await AgentClient.connect(daemon.socket) as client:
        overheard = Overheard(client, monkeypatch)
        job = await client.register_job("many")
        assert await run_all(job, 3000) <= 2
        await job.tasks_done([])
        assert sum(len(grant.ids) for grant in overheard.grants) < 1500
        [shown] = [shown for shown in daemon.status()["jobs"] if shown["job"] == job.id]
        assert (shown["done"], shown["running"], shown["queued"]) == (3000, 0, 0)
        await job.end()


async def test_without_leases_each_is_granted(start_agent: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = start_agent(cores=2, lease_s=0)
    async with await AgentClient.connect(daemon.socket) as client:
        overheard = Overheard(client, monkeypatch)
        job = await client.register_job("many")
        assert await run_all(job, 500) <= 2
        assert sum(len(grant.ids) for grant in overheard.grants) == 500
        await job.end()


async def test_the_first_in_order_has_the_lease_recalled(
    start_agent: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease would last for the whole test; the urgent job's monotask still comes before the rest of the others."""
    daemon = start_agent(cores=1, lease_s=1.0)
    async with await AgentClient.connect(daemon.socket) as client, await AgentClient.connect(daemon.socket) as other:
        job = await client.register_job("background")
        urgent = await other.register_job("urgent", priority=5.0)
        begun: list[str] = []
        holder = job.submit("cpu", 1)
        waiting = [job.submit("cpu", 1) for _ in range(50)]
        await holder.granted
        holder.complete()  # passed on at once
        await waiting[0].granted
        recalled = asyncio.Event()
        heard = client.notified

        def notified(peer: Any, method: str, params: Any) -> None:
            heard(peer, method, params)
            if method == "recall":
                recalled.set()

        monkeypatch.setattr(client, "notified", notified)
        first = urgent.submit("cpu", 1)
        await recalled.wait()
        for number, one in enumerate(waiting):
            one.granted.add_done_callback(lambda _, number=number: begun.append(f"background {number}"))
        first.granted.add_done_callback(lambda _: begun.append("urgent"))
        waiting[0].complete()
        await first.granted
        assert begun == ["background 0", "urgent"]
        first.complete()
        await waiting[1].granted
        await job.end()
        await urgent.end()
