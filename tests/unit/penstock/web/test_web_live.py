"""Server-sent events: nothing is computed without a watcher, once for all of them, and only changes travel."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from penstock.documents import Resource, Resources
from penstock.ticks import BETWEEN
from penstock.web import live
from penstock.web.live import STEP_S, Live

TIMEOUT_S = 30


class Daemon:
    """A document that changes with every look, and how often it was looked at."""

    def __init__(self) -> None:
        self.looks = 0
        self.noted = 0

    def document(self) -> dict[str, Any]:
        self.looks += 1
        return {"same": {"name": "x"}, "looks": self.looks, "resources": self.resources()}

    def resources(self) -> Resources:
        self.noted += 1
        return {"cpu": Resource(unit="cores", capacity=2.0, promised=None, used=1.0, slack=0.8)}


class Watcher:
    """Reads events of one connection."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def event(self) -> tuple[str, Any]:
        """Return the next event: its name and its data."""
        async with asyncio.timeout(TIMEOUT_S):
            while not (line := (await self.response.content.readline()).decode()).startswith("event: "):
                assert line, "the connection ended"
            data = (await self.response.content.readline()).decode()
            return line.removeprefix("event: ").strip(), json.loads(data.removeprefix("data: "))

    async def status(self) -> Any:
        """The next one of that name."""
        while True:
            name, said = await self.event()
            if name == "status":
                return said


class Left(Live):
    """Notifies when a watcher has left."""

    def __init__(self, daemon: Daemon, interval_s: float) -> None:
        super().__init__(daemon.document, daemon.resources, interval_s)
        self.left = asyncio.Event()

    async def get(self, request: web.Request) -> web.StreamResponse:
        try:
            return await super().get(request)
        finally:
            self.left.set()


@asynccontextmanager
async def served(daemon: Daemon, interval_s: float = 0.02) -> AsyncIterator[tuple[str, Left]]:
    one = Left(daemon, interval_s)
    app = web.Application()
    app.add_routes([web.get("/events", one.get)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    one.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/events", one
    one.close()
    await runner.cleanup()


async def test_the_first_events_have_all_and_later_ones_the_changes() -> None:
    async with served(Daemon()) as (url, _), aiohttp.ClientSession() as client, client.get(url) as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        watcher = Watcher(response)
        name, history = await watcher.event()
        assert name == "history" and history["resources"] == {"cpu": {"used": [1.0], "slack": [0.8]}}
        assert set(await watcher.status()) == {"same", "looks", "resources"}
        assert await watcher.status() == {"looks": 2}
        assert await watcher.status() == {"looks": 3}


async def test_nothing_is_computed_without_a_watcher() -> None:
    daemon = Daemon()
    async with served(daemon) as (url, one), aiohttp.ClientSession() as client:
        assert daemon.looks == 0 and daemon.noted == 1  # one row of history, from figures that are known anyway
        async with client.get(url) as response:
            watcher = Watcher(response)
            await watcher.status()
            assert (await watcher.status()) == {"looks": 2}
        await asyncio.wait_for(one.left.wait(), TIMEOUT_S)
        assert not one._turn.locked()  # no watcher is there that would look again
        looks = daemon.looks
        async with client.get(url) as response:
            assert (await Watcher(response).status())["looks"] in {looks, looks + 1}


async def test_a_timer_of_the_history_waits_for_the_other_timers_of_its_instant() -> None:
    daemon, loop = Daemon(), asyncio.get_running_loop()
    one = Live(daemon.document, daemon.resources)
    one.start()
    assert isinstance(one._noting, asyncio.TimerHandle)
    assert (one._noting.when() / STEP_S) % 1.0 == pytest.approx(BETWEEN)
    one._noting.cancel()
    one._wait_for_timers(loop)
    assert daemon.noted == 1
    await asyncio.sleep(0)
    assert daemon.noted == 2
    one.close()


@pytest.mark.parametrize(
    ("samples_s", "rows_s"),
    [
        ([7.001, 8.002, 9.001], [7.001, 8.002, 9.001]),
        ([7.3, 8.0, 9.01], [7.3, 8.0, 9.01]),  # one comes late
        ([7.0, 7.25, 7.5, 7.75, 8.0], [7.0, 8.0]),
        ([7.0, 7.7, 8.4, 9.1, 9.8, 10.5], [7.0, 8.4, 9.1, 10.5]),
    ],
)
async def test_without_a_timer_a_row_comes_with_the_first_change_of_a_second(
    samples_s: list[float], rows_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, rows = Daemon(), list[float]()
    one = Live(daemon.document, daemon.resources, has_timer=False)
    one.start()
    assert daemon.noted == 1 and one._noting is None
    for at_s in samples_s:
        before = daemon.noted
        with monkeypatch.context() as clock:
            clock.setattr(asyncio.get_running_loop(), "time", lambda at_s=at_s: at_s)
            one.changed()
        rows += [at_s] * (daemon.noted - before)
    assert rows == rows_s


async def test_a_document_for_many_watchers_is_computed_once() -> None:
    daemon = Daemon()
    async with served(daemon, 0.2) as (url, _), aiohttp.ClientSession() as client:
        responses = [await client.get(url) for _ in range(8)]
        watchers = [Watcher(response) for response in responses]
        firsts = [await watcher.status() for watcher in watchers]
        seen = [
            [first["looks"], (await watcher.status())["looks"]] for first, watcher in zip(firsts, watchers, strict=True)
        ]
        assert daemon.looks < 8 and {looks for pair in seen for looks in pair} <= set(range(1, daemon.looks + 1))
        for response in responses:
            response.close()


async def test_one_watcher_too_many_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_WATCHERS", 1)
    async with served(Daemon()) as (url, _), aiohttp.ClientSession() as client, client.get(url) as response:
        await Watcher(response).status()
        async with client.get(url) as other:
            assert other.status == 503 and "close a page" in await other.text()


async def test_watchers_are_disconnected_at_the_end() -> None:
    async with served(Daemon(), 1000.0) as (url, one), aiohttp.ClientSession() as client, client.get(url) as response:
        watcher = Watcher(response)
        await watcher.status()
        one.close()
        async with asyncio.timeout(TIMEOUT_S):
            assert (await response.content.read()).strip() == b""


async def test_costly_documents_are_made_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = iter([0.0, 0.05, 0.0, 0.0])  # by the thread's clock: 50 ms of work
    monkeypatch.setattr(live.time, "thread_time", lambda: next(spent, 0.0))
    daemon = Daemon()
    one = Live(daemon.document, daemon.resources)
    one._renew()
    assert one._due - live.time.monotonic() == pytest.approx(0.05 / 0.005, abs=1.0)
    one._renew()
    assert one._due - live.time.monotonic() == pytest.approx(live.INTERVAL_S, abs=1.0)
