"""A backend for joblib: each batch is one CPU monotask, in a thread of this process.

:func:`register` it, then ``with joblib.parallel_config("penstock"):``. Needs joblib 1.3 or newer.
"""

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

NAME = "penstock"
#: A callback takes microseconds; one that waits for somebody who waits for us must not be waited for (seconds).
_CALLBACK_S = 5.0
_LOCK = threading.Lock()
_gate: Gate | None = None


def register(gate: Gate | None = None) -> None:
    """Make the backend known to joblib; ``gate`` is for all of its work in this process (default: one of its own, with
    which the process is ranked)."""
    global _gate
    with _LOCK:
        _gate = gate
    register_parallel_backend(NAME, PenstockBackend)


def _own_gate() -> Gate:
    global _gate
    with _LOCK:
        if _gate is None:
            _gate = Gate("joblib", rank=True)
        return _gate


class _Callbacks:
    """Those of joblib's that run now, in whatever thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: Counter[int] = Counter()

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """While it runs."""
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
        """Until none runs but the one that asks, if it is one; at most so long as nobody would wait in vain."""
        me = threading.get_ident()
        with self._changed:
            self._changed.wait_for(lambda: not self._running.keys() - {me}, _CALLBACK_S)


class PenstockBackend(ParallelBackendBase):  # type: ignore[misc]
    """See joblib's "Parallel backend customization API"; made by joblib.

    ``parallel_config("penstock", stage="fit")`` names the stage of the monotasks.
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
        """How many batches joblib keeps submitted: one for each thread, and at least two.

        With one joblib would run them itself, past this backend.

        Raises:
            ValueError: 0.
        """
        return max(2, self._threads_of(n_jobs))

    def configure(self, n_jobs: int | None = 1, parallel: Any = None, **_: Any) -> int:
        """Called by joblib at the beginning; as :meth:`effective_n_jobs`."""
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

    #: What :meth:`submit` was called before joblib 1.5.
    apply_async = submit

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """A batch's results, or its exception."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Called by joblib after an error: what waits is given back, what runs is left to end.

        joblib 1.6 would hand out what is left of this call in the next one: batches that are ready, and what a callback
        that is under way, as its own batch is done, has in its hands. So the latter end first, and the former go.
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
        """Called by joblib at the end."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)

    def get_nested_backend(self) -> tuple[SequentialBackend, None]:
        """Within a batch: in its slot."""
        return SequentialBackend(nesting_level=(self.nesting_level or 0) + 1), None

    def _threads_of(self, n_jobs: int | None) -> int:
        """Of a negative number all cores but ``-1 - n_jobs``."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        wanted = self.default_n_jobs if n_jobs is None else n_jobs
        return wanted if wanted > 0 else max(1, (os.cpu_count() or 1) + 1 + wanted)
