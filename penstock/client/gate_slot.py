"""One monotask of a thread or coroutine at a gate."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.model.resources import ResourceKind

if TYPE_CHECKING:
    from penstock.client.gate_engine import Engine
    from penstock.client.gate_lease import Lease
    from penstock.client.monotask import Monotask

#: How often a waiting main thread looks whether it was interrupted (seconds).
_LOOK_S = 0.5

Wake = Callable[["Slot"], object]


class Slot:
    """See :class:`penstock.client.gate.Gate`. As a context manager it is released at the end of the body."""

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
        self, engine: Engine, gate: object, kind: ResourceKind, input_bytes: int, stage: str = "", task: str = ""
    ) -> None:
        self.kind = kind
        self.input_bytes = input_bytes
        self.stage = stage
        self.task = task
        #: False: it goes on without a grant, as the agent is away (or it waits still).
        self.gated = False
        #: Why it will never be granted: ``RpcError`` (refused) or ``RuntimeError`` (the gate was closed).
        self.error: Exception | None = None
        self.known = False  # the engine may have something of it
        self.monotask: Monotask | None = None  # the engine's
        self.lease: Lease | None = None  # under which it holds its slot
        self._engine = engine
        self._gate = gate  # which ends when nobody has it any more, and must not while somebody has this
        self._wake: Wake | None = None
        self._ended = False

    def release(self, *, failed: bool = False) -> None:
        """The work is done: give the slot back. From any thread; never blocks; a second time it is nothing."""
        if not self._ended:
            self._ended = True
            if self.lease is not None:
                self._give(self.lease, failed)
            elif self.known:
                self._engine.post(self._engine.end, self, failed)
            else:
                self._engine.count("released")

    def cancel(self) -> None:
        """No longer wanted, queued or granted. From any thread; never blocks; a second time it is nothing."""
        if not self._ended:
            self._ended = True
            self._engine.leases.waits_no_more(self)
            if self.lease is not None and self.lease.slot is not self:
                self._give(self.lease, None)
            elif self.known:
                self._engine.post(self._engine.withdraw, self)

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Without the slot while the body runs, for work that waits for other gated work; then with one again.

        To the agent it is one monotask, which counts at its end. The second wait blocks as ``acquire`` does; if the
        slot cannot be had (the gate was closed, the agent refuses) the work goes on ungated.
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

    def ask(self, wake: Wake) -> None:
        """Queue it; ``wake`` is called once from the gate's thread when the wait is over."""
        self._wake = wake
        self.known = True
        self._engine.post(self._engine.ask, self)

    def passes(self) -> bool:
        """Whether nobody need ask now: it goes on ungated, or in a slot that is here already."""
        if self._engine.open:
            self.gated = self.known = False
            self._engine.count("ungated")
            return True
        return self.takes()

    def takes(self) -> bool:
        """Whether it goes on in a slot that is here already; else it waits for one."""
        if not self.task:  # else the agent counts the work of a task that it knows, and must hear of this
            self.lease = self._engine.leases.take(self, time.monotonic())
            self.gated = self.lease is not None
        return self.gated

    def wait(self) -> None:
        """Queue it and block until it is granted, ungated or refused; an interrupted wait gives it back."""
        if self.passes():
            return
        if self._engine.in_thread:
            raise RuntimeError("this would block the gate's own event loop for ever; await acquire_async() there")
        done = threading.Lock()
        done.acquire()
        try:
            self.ask(lambda _: done.release())
            # A signal that comes just before the thread sleeps does not wake it, and only the main thread has signals.
            timeout_s = _LOOK_S if threading.current_thread() is threading.main_thread() else -1
            while not done.acquire(timeout=timeout_s):
                pass
        except BaseException:
            self.cancel()
            raise

    def decided(self, *, gated: bool = False, error: Exception | None = None) -> None:
        """Called by the engine: the wait is over."""
        self._engine.leases.waits_no_more(self)
        self.gated = gated
        self.error = error
        self.known = gated
        wake, self._wake = self._wake, None
        if wake is not None:
            wake(self)

    def complete(self, failed: bool) -> None:
        """Called by the engine: tell the agent, of all that ran in the slot."""
        if self.monotask is None:
            return
        if self.lease is None:
            self.monotask.complete(failed)
        else:
            self.monotask.complete(failed, self.lease.first_s, self.lease.leased(time.monotonic()))

    # ------------------------------------------------------------ inside

    def _give(self, lease: Lease, failed: bool | None) -> None:
        """Its part of a lease is over; the agent is told when the lease is."""
        if not self._engine.leases.give(lease, self, time.monotonic(), failed):
            self._engine.post(self._engine.give_back, lease)
