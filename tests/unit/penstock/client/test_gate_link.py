"""A gate's link calls its watcher at each change, and no more once the job is cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.client.gate_link import GateArguments, GateLink
from penstock.client.job import Job
from penstock.client.monotask_session import MonotaskSession
from tests.fakes.agent import FakeAgent


class Watcher:
    """Keeps the calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.job = ""
        self.changed = asyncio.Event()

    def linked(self, job: Job) -> None:
        self.job = job.id
        self._called("linked")

    def unlinked(self, reason: str) -> None:
        self._called("unlinked")

    def forgotten(self, reason: str) -> None:
        self._called("forgotten")

    def cancelled(self, error: Exception) -> None:
        self._called(str(error))

    def _called(self, what: str) -> None:
        self.calls.append(what)
        self.changed.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.calls) < count:
                self.changed.clear()
                await self.changed.wait()


async def test_no_call_follows_on_a_cancellation_that_comes_with_the_next_agent(fake: FakeAgent) -> None:
    watcher, monotasks = Watcher(), MonotaskSession[Any]()
    arguments = GateArguments("gate", fake.socket, "", 0.0, 0, 60.0, lambda text: None, rank=True, process=0)
    link = GateLink(arguments, watcher, monotasks)
    keeps = asyncio.ensure_future(link.keep())
    await watcher.until(1)
    await fake.until(lambda: len(fake.called("lend")) == 1)
    await fake.stop()
    fake.cancelled[watcher.job] = "ann"
    await fake.start()
    await watcher.until(3)
    assert link._client is not None
    await asyncio.wait_for(link._client.status(), 60)  # it is answered once the client is linked again
    keeps.cancel()
    await asyncio.gather(keeps, return_exceptions=True)
    assert watcher.calls == ["linked", "unlinked", "job 'gate' was cancelled by ann"]
    assert len(fake.called("lend")) == 1
