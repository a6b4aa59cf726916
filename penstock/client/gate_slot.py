"""One monotask of a thread or coroutine at a gate."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Protocol, Self

from penstock.client.gate_idle import IdleSlots, KeptSlot
from penstock.client.monotask_session import SessionMonotask
from penstock.model.resources import ResourceKind

_LOG = logging.getLogger("penstock.gate")
#: How often a waiting main thread checks for signals (seconds).
_LOOK_S = 0.5


class SlotEngine(Protocol):
    """Decides about slots in the gate's loop. The last four methods are events, which slots only post."""

    open: bool
    idle: IdleSlots
    totals: dict[str, int]

    @property
    def in_thread(self) -> bool:
        """Whether the caller runs in the gate's thread."""
        ...

    def post(self, event: Callable[..., None], *arguments: Any) -> None:
        """Queue an event for the loop."""
        ...

    def keep(self, slot: Slot) -> KeptSlot:
        """Keep a granted slot until its lease ends; for the loop's thread."""
        ...

    def ask(self, slot: Slot) -> None:
        """Handle a request for a slot."""
        ...

    def end(self, slot: Slot, failed: bool) -> None:
        """Handle the end of a slot's work."""
        ...

    def withdraw(self, slot: Slot) -> None:
        """Withdraw a slot that is no longer wanted."""
        ...

    def give_back(self, kept: KeptSlot) -> None:
        """Return a slot whose lease and last monotask are over."""
        ...


class Slot(SessionMonotask):
    """See :class:`penstock.client.gate.Gate`. Used as a context manager, it is released at the end of the body.

    The session's fields belong to the gate's thread; the others are set before the wait ends, or by the slot's user.
    """

    __slots__ = ("_ended", "_engine", "_gate", "_wake", "error", "gated", "kept", "known")

    def __init__(
        self, engine: SlotEngine, gate: object, kind: ResourceKind, input_bytes: int, stage: str = "", task: str = ""
    ) -> None:
        super().__init__(kind, input_bytes, stage, task)
        #: False: not granted; the work goes on without a grant as the agent is away, or still waits.
        self.gated = False
        #: Why it will never be granted: ``RpcError`` (refused) or ``RuntimeError`` (the gate was closed).
        self.error: Exception | None = None
        self.known = False  # the session may have a record of it
        self.kept: KeptSlot | None = None  # the slot under a lease that it uses
        self._engine = engine
        self._gate = gate  # keeps the gate alive, which is closed when it is collected
        self._wake: Callable[[], object] | None = None
        self._ended = False

    def release(self, *, failed: bool = False) -> None:
        """Give the slot back at the end of the work. Thread-safe; never blocks; idempotent."""
        if not self._ended:
            self._ended = True
            if self.kept is not None:
                self._give(self.kept, failed)
            elif self.known:
                self._engine.post(self._engine.end, self, failed)
            else:
                self._engine.idle.count("released")

    def cancel(self) -> None:
        """Withdraw the monotask, queued or granted. Thread-safe; never blocks; idempotent."""
        if not self._ended:
            self._ended = True
            if self.kept is not None and self.kept.holder is not self:
                self._give(self.kept, None)
            elif self.known:
                self._engine.post(self._engine.withdraw, self)

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Give the slot back during the body, which waits for other gated work; then acquire one again.

        The agent sees one monotask, which counts at its end. The second wait blocks as ``acquire`` does; if no slot can
        be had (the gate was closed, the agent refuses) the work goes on ungated.
        """
        self.cancel()
        try:
            yield
        finally:
            self._ended, self.kept = False, None
            self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release(failed=kind is not None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release(failed=kind is not None)

    # ------------------------------------------------------------ for the gate

    def ask(self, wake: Callable[[], object]) -> None:
        """Queue the monotask; ``wake`` is called once, in the gate's thread, when the wait is over."""
        self._wake = wake
        self.known = True
        self._engine.post(self._engine.ask, self)

    def passes(self, *, ungated: bool = True) -> bool:
        """Return whether the work may start now: in an idle slot of the gate, or (``ungated``) as the agent is away."""
        engine = self._engine
        self.gated = False
        if ungated and engine.open:
            self.known = False
            engine.idle.count("ungated")
            return True
        if not self.task and engine.idle.of[self.kind]:  # the agent must see all monotasks of a task: it counts them
            self.kept = engine.idle.take(self, time.monotonic())
            self.gated = self.kept is not None
        return self.gated

    def wait(self) -> None:
        """Queue the monotask and block until it is granted, ungated or refused; an interrupted wait withdraws it."""
        if self.passes():
            return
        if self._engine.in_thread:
            raise RuntimeError("this would block the gate's own event loop for ever; await acquire_async() there")
        done = threading.Lock()
        done.acquire()
        try:
            self.ask(done.release)
            # A signal just before the thread sleeps does not wake it, and only the main thread handles signals.
            timeout_s = _LOOK_S if threading.current_thread() is threading.main_thread() else -1
            while not done.acquire(timeout=timeout_s):
                pass
        except BaseException:
            self.cancel()
            raise

    def decided(self, error: Exception | None = None, *, gated: bool = True) -> bool:
        """Called in the gate's thread: end the wait, by a grant, by an error, or (not ``gated``) without a grant."""
        self.gated = self.known = gated and error is None
        self.error = error
        if gated:
            self._engine.totals["granted" if error is None else "refused"] += 1
        if self.gated and self.keep and not self.task:
            self.kept = self._engine.keep(self)
        wake, self._wake = self._wake, None
        if wake is not None:
            try:
                wake()
            except Exception:  # noqa: BLE001 - the callback is the user's code
                _LOG.exception("a callback of a gate failed")
        return True

    # ------------------------------------------------------------ inside

    def _give(self, kept: KeptSlot, failed: bool | None) -> None:
        """End this monotask's use of a kept slot; the agent is told when the lease ends."""
        if not self._engine.idle.give(kept, self, time.monotonic(), failed):
            self._engine.post(self._engine.give_back, kept)
