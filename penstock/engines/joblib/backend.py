"""The backend for joblib: each batch is one CPU monotask, in a thread of this process."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

from joblib.parallel import (  # type: ignore[import-untyped]
    ParallelBackendBase,
    SequentialBackend,
    register_parallel_backend,
)

from penstock.client.executor import MonotaskExecutor
from penstock.client.gate import Gate
from penstock.client.program import program_name

NAME = "penstock"
#: The longest wait for running callbacks (seconds): they take microseconds, but one may be waiting for this thread.
_CALLBACK_S = 5.0
_LOCK = threading.Lock()
_gate: Gate | None = None


def register(gate: Gate | None = None) -> None:
    """Register the backend with joblib; ``gate`` is used for all its work in this process (default: a new gate, with
    which the process is ranked)."""
    global _gate
    with _LOCK:
        _gate = gate
    register_parallel_backend(NAME, PenstockBackend)


def _own_gate() -> Gate:
    global _gate
    with _LOCK:
        if _gate is None:
            _gate = Gate(program_name() or "joblib", rank=True)
        return _gate


class _Callbacks:
    """Counts joblib's callbacks that are running, by thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: Counter[int] = Counter()

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Count a callback of this thread while the body runs."""
        me = threading.get_ident()
        with self._changed:
            self._running[me] += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= Counter((me,))
                self._changed.notify_all()

    def wait_for_others(self) -> None:
        """Wait, up to ``_CALLBACK_S``, until no other thread runs a callback."""
        me = threading.get_ident()
        with self._changed:
            self._changed.wait_for(lambda: not self._running.keys() - {me}, _CALLBACK_S)


class PenstockBackend(ParallelBackendBase):  # type: ignore[misc]
    """See joblib's "Parallel backend customization API"; joblib creates it.

    ``parallel_config("penstock", stage="fit")`` sets the stage of the monotasks.
    """

    default_n_jobs = -1
    supports_retrieve_callback = True
    supports_sharedmem = True
    uses_threads = True

    def __init__(self, stage: str = "", **options: Any) -> None:
        super().__init__(**options)
        self._stage = stage
        self._executor: MonotaskExecutor | None = None
        self._n_jobs: int | None = None
        self._callbacks = _Callbacks()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many batches joblib keeps submitted: one for each thread, and at least two.

        With one, joblib would run the batches itself, bypassing this backend.

        Raises:
            ValueError: ``n_jobs`` is 0.
        """
        return max(2, self._threads_of(n_jobs))

    def configure(self, n_jobs: int | None = 1, parallel: Any = None, **_: Any) -> int:
        """Called by joblib at the start; returns :meth:`effective_n_jobs`."""
        self.parallel = parallel
        self._n_jobs = n_jobs
        self._executor = MonotaskExecutor(
            _own_gate(), self._threads_of(n_jobs), stage=self._stage, thread_name_prefix="joblib"
        )
        return self.effective_n_jobs(n_jobs)

    def submit(self, func: Callable[[], Any], callback: Callable[[Future[Any]], Any] | None = None) -> Future[Any]:
        """Queue a batch."""
        assert self._executor is not None
        future = self._executor.submit(func)
        if callback is not None:
            future.add_done_callback(partial(self._call_back, callback))
        return future

    def _call_back(self, callback: Callable[[Future[Any]], Any], future: Future[Any]) -> None:
        with self._callbacks.one():
            callback(future)

    #: The name of :meth:`submit` before joblib 1.5.
    apply_async = submit

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Return a batch's results, or raise its exception."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Called by joblib after an error: withdraw waiting batches; let running ones end.

        joblib 1.6 would return remaining batches of this call in the next call: those that are ready, and those that a
        running callback has taken. So wait for the callbacks first, then drop the ready batches.
        """
        self.terminate()
        self._callbacks.wait_for_others()
        ready = getattr(self.parallel, "_ready_batches", None)
        with contextlib.suppress(queue.Empty):
            while isinstance(ready, queue.Queue):
                ready.get(block=False)
        if ensure_ready:
            self.configure(n_jobs=self._n_jobs, parallel=self.parallel)

    def terminate(self) -> None:
        """Called by joblib at the end: shut the executor down."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)

    def get_nested_backend(self) -> tuple[SequentialBackend, None]:
        """Return the backend within a batch: sequential, in the batch's slot."""
        return SequentialBackend(nesting_level=(self.nesting_level or 0) + 1), None

    def _threads_of(self, n_jobs: int | None) -> int:
        """Return the number of threads; a negative ``n_jobs`` means all cores but ``-1 - n_jobs``."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        wanted = self.default_n_jobs if n_jobs is None else n_jobs
        return wanted if wanted > 0 else max(1, (os.cpu_count() or 1) + 1 + wanted)
