"""Run scenarios for claims: on all cores, and each point once, even if several claims ask for it."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextvars import ContextVar
from heapq import heappop, heappush
from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from research.papers.scenarios import scenario_file
from simulator.report import Report
from simulator.scenario import Run, load, run
from simulator.scenario.loader import Point

_T = TypeVar("_T")
#: The function that runs points for the current claim: in this process, unless a trial sets another.
_RUNNER: ContextVar[Callable[[Sequence[Point]], list[Run]]] = ContextVar("runner", default=run)


def runs_of(name: str, settings: Mapping[str, Any] | None = None) -> list[Run]:
    """Run all points of the scenario ``name``."""
    return _RUNNER.get()(load(scenario_file(name), settings).points())


def runs_of_each(name: str, settings: Sequence[Mapping[str, Any]]) -> list[list[Run]]:
    """Return :func:`runs_of` for each of the settings. All points are requested at once, so that no core idles."""
    asked = [load(scenario_file(name), each).points() for each in settings]
    runs = iter(_RUNNER.get()([point for points in asked for point in points]))
    return [[next(runs) for _ in points] for points in asked]


class _Done(NamedTuple):
    """A report as bytes, which take a tenth of the memory of objects, and its processor seconds."""

    report: bytes
    took_s: float


class SharedRuns:
    """Runs that claims share. ``with SharedRuns(processes) as shared``; any thread may call :meth:`ask`.

    With one process, the calling thread makes the runs. With several, points of the smallest rank go first. A claim
    holds the lock ``turn`` except while it waits: claims are not thread-safe, and msgspec builds its information about
    a type without a lock.
    """

    def __init__(self, processes: int) -> None:
        self.turn = threading.Lock()
        self._processes = processes
        self._pool = _fresh_pool(processes) if processes > 1 else None
        self._lock = threading.Lock()
        self._known: dict[bytes, Future[_Done]] = {}
        self._line: list[tuple[int, int, Point, Future[_Done]]] = []
        self._under_way = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Cancel the points that have not begun; threads that wait for them get a CancelledError."""
        with self._lock:
            line, self._line = self._line, []
        for _, _, _, future in line:
            _cancel(future)
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def ask(self, point: Point, rank: int) -> Future[_Done]:
        """Return the future of a point; the point is queued unless it was requested before."""
        key = msgspec.msgpack.encode((point.model, point.seed, point.spec))
        with self._lock:
            future = self._known.get(key)
            if future is not None:
                return future
            future = self._known[key] = Future()
            if self._pool is not None:
                heappush(self._line, (rank, len(self._known), point, future))
        if self._pool is None:
            _settle(future, lambda: _measured(point))
        else:
            self._go_on()
        return future

    def _go_on(self) -> None:
        """Give the next points to idle processes."""
        while True:
            with self._lock:
                if not self._line or self._under_way == self._processes:
                    return
                self._under_way += 1
                _, _, point, future = heappop(self._line)
                running = self._submit(point)
            running.add_done_callback(lambda running, future=future: self._ended(running, future))  # type: ignore[misc]

    def _submit(self, point: Point) -> Future[_Done]:
        assert self._pool is not None
        try:
            return self._pool.submit(_measured, point)
        except BrokenProcessPool:  # a process was killed and its run failed; other runs need a new pool
            self._pool = _fresh_pool(self._processes)
            return self._pool.submit(_measured, point)

    def _ended(self, running: Future[_Done], future: Future[_Done]) -> None:
        with self._lock:
            self._under_way -= 1
        if running.cancelled():
            _cancel(future)
        else:
            _settle(future, running.result)
            self._go_on()


class Asking:
    """The runs of one claim. ``took_s`` is their processor time, including runs shared with other claims."""

    def __init__(self, shared: SharedRuns, rank: int) -> None:
        self.took_s = 0.0
        self._shared = shared
        self._rank = rank

    def __call__(self, points: Sequence[Point]) -> list[Run]:
        """Return the runs in the order of the points. Call it only within :meth:`served`."""
        asked = [self._shared.ask(point, self._rank) for point in points]
        self._shared.turn.release()
        try:
            wait(asked)
        finally:
            self._shared.turn.acquire()
        return [self._run(point, future.result()) for point, future in zip(points, asked, strict=True)]

    def _run(self, point: Point, done: _Done) -> Run:
        self.took_s += done.took_s
        report = msgspec.msgpack.decode(done.report, type=Report)
        return Run(settings=point.settings, seed=point.seed, report=report)

    def served(self, claim: Callable[[], _T]) -> _T:
        """Call ``claim`` when the turn is free, with its :func:`runs_of` requested through this object."""
        token = _RUNNER.set(self)
        try:
            with self._shared.turn:
                return claim()
        finally:
            _RUNNER.reset(token)


def _fresh_pool(processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))


def _measured(point: Point) -> _Done:
    began_s = time.process_time()
    (made,) = run([point])
    return _Done(msgspec.msgpack.encode(made.report), time.process_time() - began_s)


def _cancel(future: Future[_Done]) -> None:
    future.cancel()
    future.set_running_or_notify_cancel()  # otherwise `wait` on several futures does not return


def _settle(future: Future[_Done], make: Callable[[], _Done]) -> None:
    try:
        done = make()
    except Exception as error:  # noqa: BLE001 - the error is raised in threads that wait for the run
        future.set_exception(error)
    else:
        future.set_result(done)
