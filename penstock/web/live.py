"""``GET /events``: a document, live, as server-sent events. The document is computed only while a client is connected.

The first event of each kind has everything, later events have the changes: for ``status`` the keys with another value,
for ``history`` the new rows. A slow client gets fewer events, each up to date.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping

import msgspec
from aiohttp import web

from penstock.documents import Resources
from penstock.openapi import Fault, json
from penstock.ticks import BETWEEN, next_tick_s
from penstock.web.history import History

#: The period of the history: it has at most one row for each.
STEP_S = 1.0
#: The minimum time between two events, and the fraction of one core that their computation may take.
INTERVAL_S = 2.0
_MOST_CORES = 0.005
_MOST_INTERVAL_S = 30.0
#: With this many clients connected, another client gets status 503.
MOST_WATCHERS = 32
#: The time that a browser waits before it reconnects.
_RETRY_MS = 2000

Document = Callable[[], Mapping[str, object]]


class Live:
    """One document for all clients, and the history of ``resources``: at most one row a second."""

    def __init__(
        self, document: Document, resources: Callable[[], Resources], interval_s: float = INTERVAL_S,
        *, has_timer: bool = True,
    ) -> None:  # fmt: skip
        """``has_timer``: rows have a timer of their own; if not, the owner of ``resources`` calls :meth:`changed`."""
        self._has_timer = has_timer
        self._next_row_s = 0.0  # the time of the loop
        self._document = document
        self._resources = resources
        self._interval_s = interval_s
        self._history = History()
        self._parts: dict[str, bytes] = {}
        self._version = 0
        self._due = 0.0
        self._turn = asyncio.Lock()
        self._closed = asyncio.Event()
        self._watchers = 0
        self._noting: asyncio.Handle | None = None

    def start(self) -> None:
        """Record the first row; with a timer, start to record the others."""
        if self._has_timer:
            self._note_and_go_on(asyncio.get_running_loop())
        else:
            self._note()

    def changed(self) -> None:
        """Record a row of the new values, unless the tick after the last row is to come (:mod:`penstock.ticks`)."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_row_s:
            self._next_row_s = next_tick_s(now_s, STEP_S)
            self._note()

    def _note(self) -> None:
        self._history.note(self._resources(), time.time())

    def _note_and_go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self._noting = loop.call_at(next_tick_s(loop.time(), STEP_S, BETWEEN), self._wait_for_timers, loop)
        self._note()

    def _wait_for_timers(self, loop: asyncio.AbstractEventLoop) -> None:
        """Go on after the other timers of this instant, so that this is no lag of the loop to them."""
        self._noting = loop.call_soon(self._note_and_go_on, loop)

    def close(self) -> None:
        """Disconnect all clients, so that the server's shutdown does not wait for them."""
        self._closed.set()
        if self._noting is not None:
            self._noting.cancel()

    async def get(self, request: web.Request) -> web.StreamResponse:
        """Send events until either side closes."""
        if self._watchers >= MOST_WATCHERS:
            return json(Fault(f"{MOST_WATCHERS} watch already; close a page"), 503)
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        self._watchers += 1
        try:
            with contextlib.suppress(ConnectionError):  # the client disconnected
                await response.prepare(request)
                await response.write(f"retry: {_RETRY_MS}\n\n".encode())
                await self._serve(response)
        finally:
            self._watchers -= 1
        return response

    async def _serve(self, response: web.StreamResponse) -> None:
        has: dict[str, bytes] = {}
        version, rows_until = 0, 0.0
        while True:
            version = await self._newer(version)
            if self._closed.is_set():
                return
            parts, rows = self._parts, self._history.since(rows_until)
            rows_until = self._history.latest
            changed = {key: value for key, value in parts.items() if has.get(key) is not value}
            has = parts
            await response.write(_event("history", msgspec.json.encode(rows)) + _event("status", _joined(changed)))

    async def _newer(self, version: int) -> int:
        """Wait for a version other than ``version``; one of the waiting tasks computes it for all."""
        async with self._turn:
            now = time.monotonic()
            if self._version == version and now < self._due:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._due - now):
                        await self._closed.wait()
            if not self._closed.is_set() and time.monotonic() >= self._due:
                self._renew()
            return self._version

    def _renew(self) -> None:
        """Compute the document anew. Unchanged parts stay the same objects, which makes changes cheap to find."""
        began = time.thread_time()
        fresh = {key: msgspec.json.encode(value) for key, value in self._document().items()}
        self._parts = {key: old if (old := self._parts.get(key)) == new else new for key, new in fresh.items()}
        self._version += 1
        pause_s = min(max(self._interval_s, (time.thread_time() - began) / _MOST_CORES), _MOST_INTERVAL_S)
        self._due = time.monotonic() + pause_s


def _joined(parts: Mapping[str, bytes]) -> bytes:
    """Return a JSON object of values that are already encoded."""
    return b"{" + b",".join(msgspec.json.encode(key) + b":" + value for key, value in parts.items()) + b"}"


def _event(name: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
