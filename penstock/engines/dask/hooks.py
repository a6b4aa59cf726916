"""The only module that uses private names of distributed, or replaces methods of its objects.

Every hook first checks that all the names it needs exist. Otherwise it is not installed, the work it would gate runs
ungated, and one warning per process lists the missing names. Tested with distributed 2024.8 and 2026.8.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from functools import cache, wraps
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from distributed.utils import iscoroutinefunction

from penstock.engines.dask.pool import GatedThreadPoolExecutor, GateLike, Turn, current_turn
from penstock.engines.dask.work_count import WorkCount

T = TypeVar("T")
Wrapper = Callable[[Callable[..., Awaitable[Any]]], Callable[..., Awaitable[Any]]]
#: ``enter(input_bytes)`` is entered around the work.
Enter = Callable[[int], AbstractAsyncContextManager[object]]
EnterThread = Callable[[int], AbstractContextManager[object]]

_LOG = logging.getLogger(__name__)
#: Missing names → the work that they would have gated.
_missed: dict[str, str] = {}
_reported: set[str] = set()


class Missing(Exception):  # noqa: N818 - an answer, not an error
    """Names that this version of distributed does not have."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


def need(owner: object, *names: str) -> None:
    """Raise :class:`Missing` unless an object, or instances of a class by its annotations, have these attributes."""
    label = getattr(owner, "__qualname__", type(owner).__qualname__)
    missing = [f"{label}.{name}" for name in names if not hasattr(owner, name)]
    if missing:
        raise Missing(missing)


def look_up(module: str, *names: str) -> list[Any]:
    """Return attributes of a module of distributed.

    Raises:
        Missing: the module, or an attribute, does not exist.
    """
    try:
        found = import_module(module)
    except ImportError:
        raise Missing([module]) from None
    if missing := [f"{module}.{name}" for name in names if not hasattr(found, name)]:
        raise Missing(missing)
    return [getattr(found, name) for name in names]


def attempt(what: str, install: Callable[[], T]) -> T | None:
    """Install one hook; if a name is missing, skip it and record that for :func:`report`."""
    try:
        return install()
    except Missing as missing:
        _missed.setdefault(str(missing), what)
        return None


def report() -> None:
    """Log one warning for all missing names that were not reported before."""
    fresh = {names: what for names, what in _missed.items() if names not in _reported}
    if fresh:
        _reported.update(fresh)
        names, what = ", ".join(fresh), ", ".join(fresh.values())
        _LOG.warning("distributed %s has no %s; not gated: %s", version("distributed"), names, what)


# ---------------------------------------------------------------- the worker's asynchronous instructions


def replace_method(owner: object, name: str, wrapper: Wrapper) -> Callable[[], None]:
    """Wrap a coroutine method of one object; return the function that unwraps it.

    Raises:
        Missing: there is no such method.
    """
    need(owner, name)
    original = getattr(owner, name)
    setattr(owner, name, wraps(original)(wrapper(original)))

    def restore() -> None:
        owner.__dict__.pop(name, None)

    return restore


def is_coroutine(run_spec: object) -> bool:
    """Whether a task runs on the worker's event loop; ``run_spec`` is the worker's at execution."""
    told = getattr(run_spec, "is_coro", None)
    if told is not None:
        return bool(told)
    if not isinstance(run_spec, tuple) or not run_spec:
        return False
    return bool(iscoroutinefunction(run_spec[0]))  # type: ignore[no-untyped-call]


_TASKS_HAVE = ("annotations", "dependencies", "key", "nbytes", "prefix", "run_id", "run_spec")


def need_tasks(*more: str) -> None:
    """Check for the attributes of a worker's tasks that are read, ``more`` among them, and for the events of tasks that
    did not run.

    Raises:
        Missing: this version of distributed represents tasks differently.
    """
    task, *_ = look_up("distributed.worker_state_machine", "TaskState", "RescheduleEvent", "ExecuteFailureEvent")
    look_up("distributed.utils", "key_split_group")
    known = set(getattr(task, "__dataclass_fields__", ())) | set(dir(task))
    if missing := sorted({*_TASKS_HAVE, *more} - known):
        raise Missing([f"TaskState.{name}" for name in missing])


@cache
def _looked_up(module: str, name: str) -> Any:
    return look_up(module, name)[0]


def group(key: object) -> str:
    """Return the name of a key's task group, as in the scheduler."""
    return str(_looked_up("distributed.utils", "key_split_group")(key))


def reschedule(key: object) -> object:
    """Return the event with which ``execute`` reports a task that it did not run."""
    event = _looked_up("distributed.worker_state_machine", "RescheduleEvent")
    return event(key=key, stimulus_id=f"penstock-withdrawn-{time.time()}")


def failure(task: Any, error: Exception) -> object:
    """Return the event with which ``execute`` reports a task that failed before it ran."""
    event = _looked_up("distributed.worker_state_machine", "ExecuteFailureEvent")
    stimulus = f"penstock-failed-{time.time()}"
    return event.from_exception(error, key=task.key, run_id=task.run_id, stimulus_id=stimulus)


# ---------------------------------------------------------------- seceding from the pool, and rejoining it


POOL_NAMES = (
    "_threads", "_rejoin_list", "_rejoin_lock", "_adjust_thread_count", "_work_queue", "_shutdown", "_shutdown_lock",
)  # fmt: skip


class _SecedingThreadPoolExecutor(GatedThreadPoolExecutor):
    """Detects, in the thread itself, that it secedes from the pool and that it rejoins.

    ``distributed.secede`` removes the thread from ``_threads`` and calls ``_adjust_thread_count``;
    ``distributed.rejoin`` appends to ``_rejoin_list``, calls ``submit`` with a call that does nothing, and waits until
    a thread that has finished makes room.
    """

    _rejoin_list: list[tuple[threading.Thread, threading.Event]]
    _rejoin_lock: threading.Lock
    _shutdown: bool
    _shutdown_lock: threading.Lock
    _threads: set[threading.Thread]
    _work_queue: queue.Queue[Any]

    def submit(  # type: ignore[override]
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        turn = current_turn()
        if turn is None or not turn.seceded:
            return super().submit(fn, *args, **kwargs)
        thread = threading.current_thread()
        entry = self._take_out(thread)
        if entry is None and thread not in self._threads:  # an ordinary submit, not a rejoin
            return super().submit(fn, *args, **kwargs)
        if entry is None:  # a thread has made room already: replace it until this one has its slot
            self._threads.discard(thread)
            super()._adjust_thread_count()  # type: ignore[no-untyped-call]
        turn.regain()
        if entry is None:
            self._threads.add(thread)
        else:
            with self._rejoin_lock:
                self._rejoin_list.append(entry)
        future = self.bypass(fn, *args, **kwargs)
        turn.seceded = False
        return future

    def start(self, turn: Turn) -> None:
        """Pass a turn to the pool's threads as it is: it is its own future, and needs none of the pool's."""
        with self._shutdown_lock:
            if self._shutdown:
                raise RuntimeError("cannot schedule new calls after shutdown")
            self._work_queue.put(turn)
            self._adjust_thread_count()

    def _adjust_thread_count(self) -> None:
        turn = current_turn()
        if turn is not None and not turn.seceded and threading.current_thread() not in self._threads:
            turn.secede()
        super()._adjust_thread_count()  # type: ignore[no-untyped-call]

    def _take_out(self, thread: threading.Thread) -> tuple[threading.Thread, threading.Event] | None:
        """Remove the thread from the list until it has its slot: a thread that made room now would be missed."""
        with self._rejoin_lock:
            for entry in self._rejoin_list:
                if entry[0] is thread:
                    self._rejoin_list.remove(entry)
                    return entry
        return None


def make_pool(gate: GateLike, max_workers: int, thread_name_prefix: str, busy: WorkCount) -> GatedThreadPoolExecutor:
    """Return the worker's pool; one that handles seceding tasks if the needed names exist."""

    def seceding() -> GatedThreadPoolExecutor:
        pool = _SecedingThreadPoolExecutor(gate, max_workers, thread_name_prefix, busy)
        need(pool, *POOL_NAMES)
        return pool

    pool = attempt("what a task does after it rejoined its pool", seceding)
    return pool or GatedThreadPoolExecutor(gate, max_workers, thread_name_prefix, busy)


def thread_name_prefix(executor: object) -> str:
    """Return the name prefix of an executor's threads."""
    return str(getattr(executor, "_thread_name_prefix", "") or "Dask-Default-Threads")


# ---------------------------------------------------------------- the P2P shuffle


_p2p: dict[tuple[type, str], list[Enter]] = {}


def wrap_p2p(module: str, owner: str, method: str, enter: Enter) -> Callable[[], None]:
    """Enter a context manager around one attempt to send, or to write, a batch of a P2P shuffle's shards.

    ``method`` of the class ``owner`` takes a destination and the batch, whose size in bytes the context manager gets.
    Dask repeats a send that failed, with pauses of up to 30 s: they are outside of the context manager. An error that
    it raises fails the shuffle, as one of the method does.

    If several workers of a process wrap a method, only the first one's context manager is used.

    Raises:
        Missing: this version of distributed has no such method.
    """
    (cls,) = look_up(module, owner)
    (size_of,) = look_up("distributed.sizeof", "safe_sizeof")
    need(cls, method)
    entering = _p2p.setdefault((cls, method), [])
    entering.append(enter)
    if len(entering) == 1:
        original = getattr(cls, method)

        async def attempt(self: object, to: str, shards: Any) -> Any:
            batch = [shards] if isinstance(shards, bytes) else shards
            # Thousands of shards of bytes are usual, and Dask's function takes a microsecond and more for each.
            size_bytes = sum(len(each) if isinstance(each, bytes) else size_of(each) for each in batch)
            async with entering[0](int(size_bytes)) if entering else nullcontext():
                return await original(self, to, shards)

        setattr(cls, method, wraps(original)(attempt))

    def restore() -> None:
        entering.remove(enter)
        if not entering:
            setattr(cls, method, getattr(cls, method).__wrapped__)

    return restore


_p2p_reads: dict[type, list[EnterThread]] = {}


def wrap_p2p_read(module: str, buffer: str, enter: EnterThread) -> Callable[[], None]:
    """Enter a context manager around the reading of a partition's shards from a shuffle's files, in the reading thread.

    As in :func:`wrap_p2p`, only the first worker's context manager is used. It is not entered if there is no file.

    Raises:
        Missing: this version of distributed has no such buffer.
    """
    (cls,) = look_up(module, buffer)
    need(cls, "read")
    entering = _p2p_reads.setdefault(cls, [])
    entering.append(enter)
    if len(entering) == 1:
        original = cls.read

        def read(self: Any, id: str) -> Any:  # noqa: A002 - Dask's name
            size_bytes = _file_bytes(getattr(self, "directory", None), id)
            with entering[0](size_bytes) if entering and size_bytes else nullcontext():
                return original(self, id)

        cls.read = wraps(original)(read)

    def restore() -> None:
        entering.remove(enter)
        if not entering:
            cls.read = cls.read.__wrapped__

    return restore


def _file_bytes(directory: object, name: str) -> int:
    if not isinstance(directory, Path):
        return 0
    try:
        return (directory / name).stat().st_size
    except OSError:
        return 0


# ---------------------------------------------------------------- spilling


def wrap_spill(worker: object, enter: Enter) -> Callable[[], None]:
    """Enter a context manager around a worker's spilling when its process is short of memory.

    Raises:
        Missing: this version of distributed spills differently.
    """
    need(worker, "memory_manager")
    manager = getattr(worker, "memory_manager")  # noqa: B009 - some versions of distributed do not have it
    need(manager, "_spill", "memory_target_fraction", "memory_limit")

    def wrapper(original: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def spill(worker: object, memory: int) -> None:
            target = (manager.memory_target_fraction or 0) * (manager.memory_limit or 0)
            async with enter(max(0, memory - int(target))):
                await original(worker, memory)

        return spill

    return replace_method(manager, "_spill", wrapper)
