"""A :class:`FakeAgent` in a thread of its own, for tests of blocking code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

from tests.fakes.agent import FakeAgent

T = TypeVar("T")
_TIMEOUT_S = 60.0


class AgentThread:
    """A fake agent in a thread, as a context manager; :meth:`stop` and :meth:`start` restart it within the body."""

    def __init__(self, directory: Path, slots: int = 1) -> None:
        self.directory = directory
        self.socket = directory / "agent.sock"
        self.agent = FakeAgent(directory, slots)
        self._slots = slots
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-agent", daemon=True)
        self._running = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self._running:
            self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_TIMEOUT_S)
        self._loop.close()

    def start(self) -> Self:
        """Start to listen: for the first time, or as a new agent after :meth:`stop`."""
        if self._thread.is_alive() and not self._running:
            self._wait(self.agent.start())
            self._running = True
        return self

    def stop(self) -> None:
        """Die; the next agent starts without state."""
        self._wait(self.agent.stop())
        self._running = False
        self.agent = FakeAgent(self.directory, self._slots)

    def until(self, condition: Callable[[FakeAgent], bool]) -> None:
        """Wait until a call or a lost connection makes the condition true.

        Raises:
            TimeoutError: the condition was false for a minute.
        """
        self._wait(self.agent.until(lambda: condition(self.agent)))

    def do(self, what: Callable[[FakeAgent], T]) -> T:
        """Call a function with the agent in the agent's thread, and return its result."""

        async def done() -> T:
            return what(self.agent)

        return self._wait(done())

    def pause(self) -> Callable[[], None]:
        """Stop to read and to answer until the returned function is called."""
        hung, go_on = threading.Event(), threading.Event()

        def hang() -> None:
            hung.set()
            go_on.wait(_TIMEOUT_S)

        self._loop.call_soon_threadsafe(hang)
        hung.wait(_TIMEOUT_S)
        return go_on.set

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT_S)
