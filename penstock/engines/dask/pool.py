"""The pool of threads that runs a worker's tasks: each call is a monotask, and runs when it is granted.

The monotask is queued at the agent when Dask submits the call, so that the agent sees the queue and no thread waits.
Whoever holds a slot may wait for a thread of the pool; whoever has a thread never waits for a slot. In any other order
the two can wait for each other.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol, TypeVar

from distributed.threadpoolexecutor import ThreadPoolExecutor

from penstock.client.errors import JobCancelled
from penstock.engines.dask.busy import Busy
from penstock.engines.dask.estimate import thread_read_bytes
from penstock.engines.dask.monotask import EXECUTING, DaskMonotask
from penstock.model.resources import ResourceKind
from penstock.wire.errors import RpcError

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
#: What has been said already; so many different lines are enough.
_refusals: set[str] = set()
_MOST_REFUSALS = 20


class SlotLike(Protocol):
    """See :class:`penstock.client.gate.Slot`."""

    error: Exception | None

    def release(self, *, failed: bool = False) -> None: ...
    def cancel(self) -> None: ...


class GateLike(Protocol):
    """What the pool needs of :class:`penstock.client.gate.Gate`."""

    def acquire(self, kind: ResourceKind | str, input_bytes: int, *, stage: str = "") -> SlotLike: ...
    def submit(
        self, kind: ResourceKind | str, input_bytes: int, granted: Callable[[Any], object], *, stage: str = ""
    ) -> SlotLike: ...


def refused(error: Exception) -> None:
    """The agent does not want it, or the gate was closed: the user's work goes on, and one line says so.

    Raises:
        JobCancelled: somebody cancelled the cluster's job: no work of it goes on.
    """
    if isinstance(error, JobCancelled):
        raise error
    text = str(error)
    if text not in _refusals and len(_refusals) < _MOST_REFUSALS:
        _refusals.add(text)
        _LOG.warning("work goes on without a grant: %s", text)


class Turn(Future[Any]):
    """One call on its way: queued at the agent, then run by a thread of the pool that holds the slot.

    It is the future that its pool returns, too, and nothing that it refers to refers to it once it is done: results
    are large, and must not wait for the garbage collector.
    """

    def __init__(self, pool: GatedThreadPoolExecutor, call: Callable[[], Any], monotask: DaskMonotask) -> None:
        super().__init__()
        self.monotask = monotask
        #: It is out of the pool now. For its own thread.
        self.seceded = False
        self._pool = pool
        self._call: Callable[[], Any] | None = call
        self._slot: SlotLike | None = None
        self._granted = False
        self._noticed = False
        self._lock = threading.Lock()

    def queue(self) -> None:
        """Ask for the slot; any thread may be told of it."""
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

    def granted(self, slot: SlotLike) -> None:
        """The gate's callback."""
        with self._lock:
            self._slot, self._granted = slot, True
        try:
            if slot.error is not None:
                refused(slot.error)
            self._pool.start(self)
        except RuntimeError as error:  # cancelled, or shut down in this very moment
            self.abandon(error)

    def cancel(self) -> bool:
        """As any future's; what was cancelled neither waits for a slot nor holds one."""
        cancelled = super().cancel()
        if cancelled:
            self.cancel_slot()
            self._over()
        return cancelled

    def abandon(self, error: Exception) -> None:
        """It will not run."""
        self.cancel_slot()
        if not self.cancelled():
            with contextlib.suppress(Exception):  # somebody was faster
                self.set_exception(error)
                self._over()

    def run(self) -> None:
        """In a thread of the pool."""
        call, self._call = self._call, None
        if call is None or not self.set_running_or_notify_cancel():
            self.cancel_slot()
            return
        _LOCAL.turn = self
        try:
            result = self._measured(call)
        except BaseException as error:  # noqa: BLE001 - the future tells whoever waits
            self._done(failed=True)
            self.set_exception(error)
        else:
            self._done(failed=isinstance(result, dict) and result.get("op") == "task-erred")
            self.set_result(result)

    def _done(self, *, failed: bool) -> None:
        """All that is ours before anybody hears of it: whoever waits wants Python's lock at once."""
        _LOCAL.turn = None
        self.give_back(failed=failed)
        self._over()

    def give_back(self, *, failed: bool = False) -> None:
        """The slot, if it is held now."""
        with self._lock:
            slot, self._slot = self._slot, None
        if slot is not None:
            slot.release(failed=failed)

    def secede(self) -> None:
        """The call goes on outside of the pool, to wait for others: without a slot."""
        self.seceded = self._noticed = True
        self.give_back()

    def long_running(self) -> None:
        """Dask says that the call has seceded, which :meth:`secede` may have said before, and more exactly."""
        if not self._noticed:
            self.give_back()

    def regain(self) -> None:
        """Wait for a slot again, in the call's own thread; it goes on without if there can be none."""
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
        """Queued or held: it is no longer wanted."""
        with self._lock:
            slot, self._slot = self._slot, None
        if slot is not None:
            slot.cancel()

    def _over(self) -> None:
        """It has an end, of whatever kind."""
        self.monotask.turn = self.monotask.withdraw = None
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
    """What the calling thread is running for a gated pool."""
    return _LOCAL.turn


class GatedThreadPoolExecutor(ThreadPoolExecutor):
    """Dask's own pool, but for the grants. Dask knows a pool of threads by its class's name."""

    def __init__(self, gate: GateLike, max_workers: int, thread_name_prefix: str, busy: Busy) -> None:
        """``busy`` counts what waits or runs."""
        super().__init__(max_workers, thread_name_prefix=thread_name_prefix)  # type: ignore[no-untyped-call]
        self.gate = gate
        #: What a call is that no task describes.
        self.usual: ResourceKind | None = ResourceKind.CPU
        self._busy = busy
        self._turns: set[Turn] = set()

    def submit(  # type: ignore[override]
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        """As any executor; the call runs once its monotask is granted, or as in Dask's own pool where it is none."""
        monotask = EXECUTING.get()
        if monotask is None:
            if self.usual is None:
                return self.bypass(fn, *args, **kwargs)
            monotask = DaskMonotask(self.usual)
        if monotask.turn is not None:  # a task that uses its worker's pool for itself
            monotask = DaskMonotask(monotask.kind, stage=monotask.stage)
        turn = Turn(self, partial(fn, *args, **kwargs), monotask)
        monotask.turn = turn
        monotask.withdraw = turn.cancel
        self._busy.enter()
        self._turns.add(turn)
        if monotask.kind is None:
            self.start(turn)
        else:
            turn.queue()
        return turn

    def start(self, turn: Turn) -> None:
        """It is granted: the next free thread runs it.

        Raises:
            RuntimeError: the pool was shut down.
        """
        self.bypass(turn.run)

    def bypass(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """As an ungated pool would."""
        future: Future[Any] = super().submit(fn, *args, **kwargs)  # type: ignore[no-untyped-call]
        return future

    def shutdown(self, wait: bool = True, timeout: float | None = None) -> None:  # type: ignore[override]
        """What has not begun will not; what runs keeps its slot to its end."""
        for turn in list(self._turns):
            turn.cancel()
        super().shutdown(wait=wait, timeout=timeout)  # type: ignore[no-untyped-call]

    def ended(self, turn: Turn) -> None:
        """A turn has its end, or is told of it again."""
        try:
            self._turns.remove(turn)
        except KeyError:
            return
        self._busy.leave()
