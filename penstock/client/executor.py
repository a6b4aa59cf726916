"""A :mod:`concurrent.futures` executor that runs each call as a monotask, when the agent has granted it."""

from __future__ import annotations

import contextlib
import enum
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from penstock.client.arguments import shown, size_bytes, whole
from penstock.client.gate import Gate, Slot
from penstock.model.resources import KINDS, ResourceKind, kind_of
from penstock.model.units import LIMIT

P = ParamSpec("P")
T = TypeVar("T")


class _Running(threading.local):
    """The slot of the task that runs in this thread."""

    slot: Slot | None = None


_RUNNING = _Running()


@contextlib.contextmanager
def released() -> Iterator[None]:
    """Give the current task's slot back during the body, which waits for other gated work.

    Has no effect outside the tasks of a :class:`MonotaskExecutor`.
    """
    slot = _RUNNING.slot
    if slot is None:
        yield
        return
    _RUNNING.slot = None  # a nested released() has no slot to give back
    try:
        with slot.released():
            yield
    finally:
        _RUNNING.slot = slot


class MonotaskFuture(Future[T]):
    """A future of a :class:`MonotaskExecutor`. A task that waits for one gives its slot back during the wait."""

    def result(self, timeout: float | None = None) -> T:
        """See :meth:`concurrent.futures.Future.result`; ``timeout`` does not bound the wait to regain the slot."""
        with contextlib.nullcontext() if self.done() else released():
            return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """See :meth:`concurrent.futures.Future.exception`; the slot is treated as in :meth:`result`."""
        with contextlib.nullcontext() if self.done() else released():
            return super().exception(timeout)


class _State(enum.Enum):
    QUEUED = enum.auto()  # waits for a grant
    PARKED = enum.auto()  # granted while every thread was busy: the grant was returned, to be requested again
    READY = enum.auto()  # granted, waits for a thread that is about to take it
    CANCELLED = enum.auto()


class _Work:
    """A submitted call and its monotask."""

    __slots__ = ("call", "future", "input_bytes", "kind", "slot", "state")

    def __init__(self, kind: ResourceKind, input_bytes: int, call: Callable[[], Any]) -> None:
        self.kind = kind
        self.input_bytes = input_bytes
        self.call = call
        self.future: MonotaskFuture[Any] = MonotaskFuture()
        self.slot: Slot | None = None
        self.state = _State.QUEUED

    def run(self, slot: Slot, done: Callable[[], None]) -> None:
        """Run the call in a pool thread; ``done`` is called after the call and before its result is published."""
        if not self.future.set_running_or_notify_cancel():
            slot.cancel()
            done()
            return
        if slot.error is not None:
            done()
            self.future.set_exception(slot.error)
            return
        _RUNNING.slot = slot
        try:
            result = self.call()
        except BaseException as error:  # noqa: BLE001 - any exception of the call is its result
            self._over(slot, done, failed=True)
            self.future.set_exception(error)
        else:
            self._over(slot, done, failed=False)
            self.future.set_result(result)

    @staticmethod
    def _over(slot: Slot, done: Callable[[], None], *, failed: bool) -> None:
        _RUNNING.slot = None
        slot.release(failed=failed)
        done()


class MonotaskExecutor(Executor):
    """Runs calls in threads. Each call is a monotask: queued at the agent at once, run when granted.

    The agent decides the order, also among the calls of one executor. ``max_workers`` bounds the threads as in
    ``ThreadPoolExecutor``; the agent bounds the running calls. A grant that finds every thread busy is returned at
    once, so that no slot is idle here. A call that waits by ``result()`` or ``exception()`` for another call of the
    same executor gives its slot back during the wait; for any other wait (``wait``, ``as_completed``, a queue) use
    ``with released():``. The waiting call keeps its thread: as many nested waits as threads deadlock, as in
    ``ThreadPoolExecutor``.
    """

    def __init__(
        self,
        gate: Gate,
        max_workers: int | None = None,
        *,
        kind: ResourceKind | str = ResourceKind.CPU,
        stage: str = "",
        thread_name_prefix: str = "penstock",
    ) -> None:
        """``kind`` and ``stage`` apply to :meth:`submit`; ``max_workers`` defaults to the number of cores.

        Raises:
            ValueError: unknown kind of resource, or ``max_workers`` is not positive.
            TypeError: ``gate`` is no gate, or ``max_workers`` is not a whole number.
        """
        if not isinstance(gate, Gate):
            raise TypeError(f"gate: a Gate expected, not {shown(gate)}; write for example Gate('word-count')")
        if max_workers is not None:
            max_workers = whole("max_workers", max_workers, 1, "write the number of threads, or None")
        self._gate = gate
        self._kind = kind_of(kind)
        self._stage = stage
        self._threads = max_workers or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._threads if max_workers is None else max_workers, thread_name_prefix)
        self._ready: SimpleQueue[tuple[_Work, Slot] | None] = SimpleQueue()
        self._lock = threading.RLock()  # a closed gate calls back while the lock is held
        self._works: set[_Work] = set()
        self._busy = 0  # threads that run a call or are about to start one
        self._parked: dict[ResourceKind, deque[_Work]] = {kind: deque() for kind in KINDS}
        self._again: dict[ResourceKind, _Work] = {}  # the parked call that is queued again, at most one per kind
        self._shut = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See :meth:`concurrent.futures.Executor.submit`; the unknown input size is submitted as 0.

        Raises:
            RuntimeError: the executor was shut down, or the gate closed.
        """
        return self._submit(self._kind, 0, partial(fn, *args, **kwargs))

    def submit_monotask(
        self, kind: ResourceKind | str, input_bytes: int, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """Submit a call with its resource kind and input size (bytes), by which the agent orders monotasks.

        Raises:
            ValueError: unknown kind of resource, or a size below 0 or from 2⁶³ on; TypeError: the size is no number.
            RuntimeError: the executor was shut down, or the gate closed.
        """
        return self._submit(kind_of(kind), input_bytes, partial(fn, *args, **kwargs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See :meth:`concurrent.futures.Executor.shutdown`; cancelled futures withdraw their queued monotasks."""
        with self._lock:
            self._shut = True
            works = list(self._works)
        if cancel_futures:
            for work in works:
                work.future.cancel()
        self._pool.shutdown(wait=wait)

    def _submit(self, kind: ResourceKind, input_bytes: int, call: Callable[[], T]) -> Future[T]:
        if type(input_bytes) is not int or not 0 <= input_bytes < LIMIT:
            input_bytes = size_bytes("input_bytes", input_bytes)
        work = _Work(kind, input_bytes, call)
        with self._lock:
            if self._shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            # One pool task per call; it runs the next granted call, not necessarily this one.
            self._pool.submit(self._run_next)
            try:
                self._queue(work)
            except BaseException:
                self._ready.put(None)
                raise
            self._works.add(work)
        work.future.add_done_callback(partial(self._done, work))
        return work.future

    def _queue(self, work: _Work) -> None:
        work.state = _State.QUEUED
        granted = partial(self._granted, work)
        work.slot = self._gate.submit(work.kind, work.input_bytes, granted, stage=self._stage)

    def _run_next(self) -> None:
        if (next_one := self._ready.get()) is None:
            return
        work, slot = next_one
        del next_one
        work.run(slot, self._idle)

    def _idle(self) -> None:
        """Free the thread. Called before the future's callbacks run, which may submit further calls."""
        with self._lock:
            self._busy -= 1
            self._queue_parked()

    def _granted(self, work: _Work, slot: Slot) -> None:
        """Handle a grant, in the gate's thread."""
        with self._lock:
            if self._again.get(work.kind) is work:
                del self._again[work.kind]
            if work.state is not _State.QUEUED:
                slot.cancel()
            elif self._busy < self._threads:
                self._busy += 1
                work.state = _State.READY
                self._ready.put((work, slot))
            else:
                slot.cancel()
                work.state = _State.PARKED
                self._parked[work.kind].append(work)
            self._queue_parked()

    def _queue_parked(self) -> None:
        """While a thread is free, queue one parked call of each kind again."""
        for kind, parked in self._parked.items():
            while parked and kind not in self._again and self._busy < self._threads:
                work = parked.popleft()
                if work.state is not _State.PARKED:
                    continue
                self._again[kind] = work
                try:
                    self._queue(work)
                except RuntimeError as error:  # the gate was closed
                    del self._again[kind]
                    work.state = _State.CANCELLED
                    if work.future.set_running_or_notify_cancel():
                        work.future.set_exception(error)
                    self._ready.put(None)

    def _done(self, work: _Work, future: Future[Any]) -> None:
        """Callback of the future: withdraw a cancelled call's monotask and release its pool task."""
        with self._lock:
            self._works.discard(work)
            if not future.cancelled() or work.state in {_State.READY, _State.CANCELLED}:
                return  # the thread that takes the call finds it cancelled and returns the slot
            work.state = _State.CANCELLED
            if self._again.get(work.kind) is work:
                del self._again[work.kind]
            assert work.slot is not None
            work.slot.cancel()
            self._queue_parked()
        future.set_running_or_notify_cancel()  # wakes waiters at once
        self._ready.put(None)
