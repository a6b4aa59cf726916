"""One monotask of a thread or coroutine at a gate."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Protocol, Self

from penstock.client.gate_lease import Lease, Leases
from penstock.client.monotask import Monotask
from penstock.model.resources import ResourceKind

#: How often a waiting main thread checks for signals (seconds).
_LOOK_S = 0.5


class SlotEngine(Protocol):
    """Decides about slots in the gate's loop. The last four methods are events, which slots only post."""

    open: bool
    leases: Leases[Slot]

    @property
    def in_thread(self) -> bool:
        """Whether the caller runs in the gate's thread."""
        ...

    def post(self, event: Callable[..., None], *arguments: Any) -> None:
        """Queue an event for the loop."""
        ...

    def count(self, what: str) -> None:
        """Count a monotask that bypassed the loop."""
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

    def give_back(self, lease: Lease[Slot]) -> None:
        """Return a slot whose lease and last monotask are over."""
        ...


class Slot:
    """See :class:`penstock.client.gate.Gate`. Used as a context manager, it is released at the end of the body."""

    __slots__ = (
        "_ended",
        "_engine",
        "_gate",
        "_wake",
        "error",
        "gated",
        "input_bytes",
        "kind",
        "known",
        "lease",
        "monotask",
        "stage",
        "task",
    )

    def __init__(
        self, engine: SlotEngine, gate: object, kind: ResourceKind, input_bytes: int, stage: str = "", task: str = ""
    ) -> None:
        self.kind = kind
        self.input_bytes = input_bytes
        self.stage = stage
        self.task = task
        #: False: not granted; the work goes on without a grant as the agent is away, or still waits.
        self.gated = False
        #: Why it will never be granted: ``RpcError`` (refused) or ``RuntimeError`` (the gate was closed).
        self.error: Exception | None = None
        self.known = False  # the engine may have a record of it
        self.monotask: Monotask | None = None  # set by the engine
        self.lease: Lease[Slot] | None = None  # the lease under which the slot is held
        self._engine = engine
        self._gate = gate  # keeps the gate alive, which is closed when it is collected
        self._wake: Callable[[Slot], object] | None = None
        self._ended = False

    def release(self, *, failed: bool = False) -> None:
        """Give the slot back at the end of the work. Thread-safe; never blocks; idempotent."""
        if not self._ended:
            self._ended = True
            if self.lease is not None:
                self._give(self.lease, failed)
            elif self.known:
                self._engine.post(self._engine.end, self, failed)
            else:
                self._engine.count("released")

    def cancel(self) -> None:
        """Withdraw the monotask, queued or granted. Thread-safe; never blocks; idempotent."""
        if not self._ended:
            self._ended = True
            self._engine.leases.waits_no_more(self)
            if self.lease is not None and self.lease.slot is not self:
                self._give(self.lease, None)
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
            self._ended, self.lease = False, None
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

    def ask(self, wake: Callable[[Slot], object]) -> None:
        """Queue the monotask; ``wake`` is called once, in the gate's thread, when the wait is over."""
        self._wake = wake
        self.known = True
        self._engine.post(self._engine.ask, self)

    def passes(self) -> bool:
        """Return whether the work may start now: ungated, or in an idle slot of the gate."""
        if self._engine.open:
            self.gated = self.known = False
            self._engine.count("ungated")
            return True
        return self.takes()

    def takes(self) -> bool:
        """Take an idle slot of the gate; False: there is none, and the monotask waits."""
        if not self.task:  # the agent counts the work of each task, and must see its monotasks
            self.lease = self._engine.leases.take(self, time.monotonic())
            self.gated = self.lease is not None
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
            self.ask(lambda _: done.release())
            # A signal just before the thread sleeps does not wake it, and only the main thread handles signals.
            timeout_s = _LOOK_S if threading.current_thread() is threading.main_thread() else -1
            while not done.acquire(timeout=timeout_s):
                pass
        except BaseException:
            self.cancel()
            raise

    def decided(self, *, gated: bool = False, error: Exception | None = None) -> None:
        """Called by the engine: end the wait."""
        self._engine.leases.waits_no_more(self)
        self.gated = gated
        self.error = error
        self.known = gated
        wake, self._wake = self._wake, None
        if wake is not None:
            wake(self)

    def complete(self, failed: bool) -> None:
        """Called by the engine: report all monotasks that ran in the slot to the agent."""
        if self.monotask is None:
            return
        if self.lease is None:
            self.monotask.complete(failed)
        else:
            self.monotask.complete(failed, self.lease.first_s, self.lease.leased(time.monotonic()))

    # ------------------------------------------------------------ inside

    def _give(self, lease: Lease[Slot], failed: bool | None) -> None:
        """End this monotask's use of a lease; the agent is told when the lease ends."""
        if not self._engine.leases.give(lease, self, time.monotonic(), failed):
            self._engine.post(self._engine.give_back, lease)
