"""The thread pool for a worker's tasks: each call is a monotask, and runs when it is granted.

The monotask is queued at the agent when Dask submits the call, so that the agent sees the queue and no thread waits. A
slot holder may wait for a thread of the pool, but a call that has a thread never waits for a slot: with both kinds of
waits, deadlocks would be possible.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from distributed.threadpoolexecutor import ThreadPoolExecutor

from penstock.client.errors import JobCancelled
from penstock.client.gate import Slot
from penstock.engines.dask.estimate import thread_read_bytes
from penstock.engines.dask.work_count import WorkCount
from penstock.model.resources import ResourceKind
from penstock.wire.errors import RpcError

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
#: Messages that were logged already, each once; their number is limited.
_refusals: set[str] = set()
_MOST_REFUSALS = 20


@dataclass(slots=True, eq=False)
class DaskMonotask:
    """One Dask task before its grant. ``kind`` None: annotated as ungated."""

    kind: ResourceKind | None = ResourceKind.CPU
    input_bytes: int = 0
    stage: str = ""
    learn: Callable[[int], None] | None = field(default=None, repr=False)
    """Is called with the number of bytes that the task's thread read."""
    long_running: Callable[[], None] | None = field(default=None, repr=False)
    """Gives the slot back when the task has left its worker's pool; set once it is submitted there."""
    withdraw: Callable[[], bool] | None = field(default=None, repr=False)
    """Withdraws it while it is not granted; returns False if it is too late."""
    withdrawn: bool = False
    """Dask cancelled it before it was granted."""


#: The task that the current context executes, for the pool: Dask's executor interface does not pass it.
EXECUTING: ContextVar[DaskMonotask | None] = ContextVar("penstock_executing", default=None)


class GateLike(Protocol):
    """The methods of :class:`penstock.client.gate.Gate` that the pool and the worker use."""

    async def acquire_async(self, kind: ResourceKind | str, input_bytes: int, *, stage: str = "") -> Slot: ...
    def acquire(self, kind: ResourceKind | str, input_bytes: int, *, stage: str = "") -> Slot: ...
    def submit(
        self, kind: ResourceKind | str, input_bytes: int, granted: Callable[[Slot], object], *, stage: str = ""
    ) -> Slot: ...


def refused(error: Exception) -> None:
    """Handle a refusal by the agent or a closed gate: the user's work goes on, with one warning.

    Raises:
        JobCancelled: a user cancelled the cluster's job, whose work must not go on.
    """
    if isinstance(error, JobCancelled):
        raise error
    text = str(error)
    if text not in _refusals and len(_refusals) < _MOST_REFUSALS:
        _refusals.add(text)
        _LOG.warning("work goes on without a grant: %s", text)


class Turn(Future[Any]):
    """One call: queued at the agent, then run by a thread of the pool while it holds the slot.

    It is also the future that the pool returns. When it is done, it must not be part of a reference cycle: results are
    large, and must be freed without the garbage collector.
    """

    def __init__(self, pool: GatedThreadPoolExecutor, call: Callable[[], Any], monotask: DaskMonotask) -> None:
        super().__init__()
        self.monotask = monotask
        #: Whether it has left the pool. For its own thread.
        self.seceded = False
        self._pool = pool
        self._call: Callable[[], Any] | None = call
        self._slot: Slot | None = None
        self._granted = False
        self._noticed = False
        self._lock = threading.Lock()

    def queue(self) -> None:
        """Request the slot; the grant may be delivered in any thread."""
        one = self.monotask
        assert one.kind is not None
        slot = self._pool.gate.submit(one.kind, one.input_bytes, self.granted, stage=one.stage)
        if self._granted:
            return
        with self._lock:
            if not self._granted:
                self._slot = slot
        if self.cancelled():
            self.cancel_slot()

    def granted(self, slot: Slot) -> None:
        """Called by the gate: the slot is granted or refused."""
        with self._lock:
            self._slot, self._granted = slot, True
        try:
            if slot.error is not None:
                refused(slot.error)
            self._pool.start(self)
        except RuntimeError as error:  # cancelled, or the pool was just shut down
            self.abandon(error)

    def cancel(self) -> bool:
        """Cancel as any future, and withdraw the slot."""
        cancelled = super().cancel()
        if cancelled:
            self.cancel_slot()
            self._over()
        return cancelled

    def abandon(self, error: Exception) -> None:
        """Fail the call, which will not run."""
        self.cancel_slot()
        if not self.cancelled():
            with contextlib.suppress(Exception):  # the future is done already
                self.set_exception(error)
                self._over()

    def run(self) -> None:
        """Run the call, in a thread of the pool."""
        call, self._call = self._call, None
        if call is None or not self.set_running_or_notify_cancel():
            self.cancel_slot()
            return
        _LOCAL.turn = self
        try:
            result = self._measured(call)
        except BaseException as error:  # noqa: BLE001 - the future passes it on
            self._done(failed=True)
            self.set_exception(error)
        else:
            self._done(failed=isinstance(result, dict) and result.get("op") == "task-erred")
            self.set_result(result)

    def _done(self, *, failed: bool) -> None:
        """Clean up before the future is set: its waiters compete for the GIL at once."""
        _LOCAL.turn = None
        self.give_back(failed=failed)
        self._over()

    def give_back(self, *, failed: bool = False) -> None:
        """Release the slot if it is held."""
        with self._lock:
            slot, self._slot = self._slot, None
        if slot is not None:
            slot.release(failed=failed)

    def secede(self) -> None:
        """Leave the pool, to wait for other tasks without a slot."""
        self.seceded = self._noticed = True
        self.give_back()

    def long_running(self) -> None:
        """Release the slot when Dask reports a secession, unless :meth:`secede` has noticed it earlier."""
        if not self._noticed:
            self.give_back()

    def regain(self) -> None:
        """Wait for a slot again, in the call's own thread; continue without one if it is refused."""
        one = self.monotask
        if one.kind is None:
            return
        try:
            slot = self._pool.gate.acquire(one.kind, one.input_bytes, stage=one.stage)
        except (RpcError, RuntimeError) as error:
            refused(error)
            return
        with self._lock:
            self._slot = slot

    def cancel_slot(self) -> None:
        """Withdraw the slot, queued or held."""
        with self._lock:
            slot, self._slot = self._slot, None
        if slot is not None:
            slot.cancel()

    def _over(self) -> None:
        """Record the end of the call."""
        self.monotask.long_running = self.monotask.withdraw = None
        self._pool.ended(self)

    def _measured(self, call: Callable[[], Any]) -> Any:
        learn = self.monotask.learn
        if learn is None:
            return call()
        before = thread_read_bytes()
        result = call()
        learn(max(0, thread_read_bytes() - before))
        return result


class _Local(threading.local):
    turn: Turn | None = None


_LOCAL = _Local()


def current_turn() -> Turn | None:
    """Return the turn that the calling thread runs for a gated pool."""
    return _LOCAL.turn


class GatedThreadPoolExecutor(ThreadPoolExecutor):
    """Dask's own pool with grants. Dask recognizes thread pools by their class's name."""

    def __init__(self, gate: GateLike, max_workers: int, thread_name_prefix: str, busy: WorkCount) -> None:
        """``busy`` counts waiting and running calls."""
        super().__init__(max_workers, thread_name_prefix=thread_name_prefix)  # type: ignore[no-untyped-call]
        self.gate = gate
        #: The kind of a call without a described task.
        self.usual: ResourceKind | None = ResourceKind.CPU
        self._busy = busy
        self._turns: set[Turn] = set()

    def submit(  # type: ignore[override]
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        """Submit a call; it runs when its monotask is granted, or as in Dask's own pool if it is ungated."""
        monotask = EXECUTING.get()
        if monotask is None:
            if self.usual is None:
                return self.bypass(fn, *args, **kwargs)
            monotask = DaskMonotask(self.usual)
        if monotask.long_running is not None:  # a task that itself submits to its worker's pool
            monotask = DaskMonotask(monotask.kind, stage=monotask.stage)
        turn = Turn(self, partial(fn, *args, **kwargs), monotask)
        monotask.long_running = turn.long_running
        monotask.withdraw = turn.cancel
        self._busy.enter()
        self._turns.add(turn)
        if monotask.kind is None:
            self.start(turn)
        else:
            turn.queue()
        return turn

    def start(self, turn: Turn) -> None:
        """Let the next free thread run a granted turn.

        Raises:
            RuntimeError: the pool was shut down.
        """
        self.bypass(turn.run)

    def bypass(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a call without a grant."""
        future: Future[Any] = super().submit(fn, *args, **kwargs)  # type: ignore[no-untyped-call]
        return future

    def shutdown(self, wait: bool = True, timeout: float | None = None) -> None:  # type: ignore[override]
        """Cancel calls that have not started; running calls keep their slots to their ends."""
        for turn in list(self._turns):
            turn.cancel()
        super().shutdown(wait=wait, timeout=timeout)  # type: ignore[no-untyped-call]

    def ended(self, turn: Turn) -> None:
        """Remove an ended turn; idempotent."""
        try:
            self._turns.remove(turn)
        except KeyError:
            return
        self._busy.leave()
