"""Gating of one Dask worker: its tasks, transfers, shuffles and spilling become monotasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from dask.typing import Key
from distributed.core import Status
from distributed.threadpoolexecutor import ThreadPoolExecutor

from penstock.client.errors import JobCancelled
from penstock.client.gate import Slot
from penstock.engines.dask import hooks
from penstock.engines.dask.annotated_tasks import GRANT_OWNER
from penstock.engines.dask.estimate import ReadEstimates
from penstock.engines.dask.pool import EXECUTING, DaskMonotask, GatedThreadPoolExecutor, refused
from penstock.engines.dask.settings import Settings
from penstock.engines.dask.shards import ShardReads
from penstock.engines.dask.spill import Evictor
from penstock.engines.dask.work_count import WorkCount
from penstock.model.resources import ResourceKind
from penstock.model.units import LIMIT
from penstock.wire.errors import RpcError

if TYPE_CHECKING:
    from distributed.worker import Worker

    from penstock.engines.dask.jobs import ClusterGate

_LOG = logging.getLogger(__name__)
#: Target states of a task of which :meth:`GatedWorker.transition` must be told.
MATTER = frozenset({"long-running", "released", "memory"})
_P2P = "distributed.shuffle"
_CPU, _DISK, _NETWORK = ResourceKind.CPU, ResourceKind.DISK, ResourceKind.NETWORK


class GatedWorker:
    """Gates a worker in its event loop; :meth:`install` starts gating, :meth:`remove` undoes it."""

    def __init__(self, worker: Worker, gate: ClusterGate, settings: Settings) -> None:
        self._worker = worker
        self._gate = gate
        self._settings = settings
        self._usual = _CPU if settings.cpu else None
        self._busy = WorkCount()
        self._estimates = ReadEstimates()
        self._executing: dict[Key, DaskMonotask] = {}
        self._restore: list[Callable[[], None]] = []
        self._ungated_pool: Executor | None = None
        self._pool: GatedThreadPoolExecutor | None = None
        self._evictor: Evictor | None = None

    # ------------------------------------------------------------ installation

    def install(self) -> None:
        """Gate everything that the worker starts from now on."""
        self._replace_pool()
        self._hook("coroutine tasks and other executors", self._wrap_execute)
        if self._settings.network:
            self._hook("transfers", lambda: self._wrap("gather_dep", self._gather_dep))
            self._hook("P2P transfers", lambda: hooks.wrap_p2p(f"{_P2P}._core", "ShuffleRun", "_send", self._sending))
        if self._settings.disk:
            self._hook(
                "P2P disk writes",
                lambda: hooks.wrap_p2p(
                    f"{_P2P}._disk", "DiskShardsBuffer", "_process", lambda size: self._held(_DISK, size, "p2p-write")
                ),
            )
            reads = ShardReads(self._gate, self._settings.spill_patience_s)
            self._hook(
                "P2P disk reads",
                lambda: hooks.wrap_p2p_read(f"{_P2P}._disk", "DiskShardsBuffer", reads.held),
            )
            self._hook(
                "spilling",
                lambda: hooks.wrap_spill(self._worker, lambda size: self._during(self._slot_to_spill(size))),
            )
            self._evictor = Evictor.of(self._worker, self._held)

    def remove(self, idle: Callable[[], object]) -> None:
        """Stop gating; ``idle`` is called when nothing holds or requests a slot any more."""
        for restore in reversed(self._restore):
            restore()
        self._restore.clear()
        if self._evictor is not None:
            self._evictor.remove()
        pool, before = self._pool, self._ungated_pool
        if before is not None and self._worker.status in (Status.closing, Status.closed, Status.failed):
            before.shutdown(wait=False)  # the worker closes its current pool itself
        elif before is not None and self._worker.executors.get("default") is pool:
            self._worker.executors["default"] = before
        self._busy.when_idle(idle)

    def _replace_pool(self) -> None:
        """Replace Dask's own pool only: a user's executor may be of any type, and is gated around ``execute``."""
        worker = self._worker
        default = worker.executors["default"]
        if type(default) is not ThreadPoolExecutor or default is worker.executors.get("offload"):
            return
        self._ungated_pool = default
        self._pool = hooks.make_pool(self._gate, worker.state.nthreads, hooks.thread_name_prefix(default), self._busy)
        self._pool.usual = self._usual
        worker.executors["default"] = self._pool

    def _hook(self, what: str, install: Callable[[], Callable[[], None]]) -> None:
        restore = hooks.attempt(what, install)
        if restore is not None:
            self._restore.append(restore)

    def _wrap(self, name: str, wrapper: hooks.Wrapper) -> Callable[[], None]:
        return hooks.replace_method(self._worker, name, wrapper)

    def _wrap_execute(self) -> Callable[[], None]:
        hooks.need_tasks()
        return self._wrap("execute", self._execute)

    # ------------------------------------------------------------ called by the plugin

    def transition(self, key: Key, start: str, finish: str) -> None:
        """Handle a task's transition to a state in :data:`MATTER`."""
        if finish == "long-running":
            if (one := self._executing.get(key)) is not None and one.long_running is not None:
                one.long_running()
        elif finish == "released" and start == "executing":
            if (one := self._executing.get(key)) is not None and one.withdraw is not None:
                one.withdrawn = one.withdraw()
        elif finish == "memory" and self._evictor is not None:
            self._evictor.look()

    # ------------------------------------------------------------ around the worker's instructions

    def _execute(self, original: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def execute(key: Key, *, stimulus_id: str) -> Any:
            task = self._worker.state.tasks.get(key)
            if task is None:
                return await original(key, stimulus_id=stimulus_id)
            if self._evictor is not None and task.dependencies:
                await self._evictor.read_back((each.key, each.nbytes or 0) for each in task.dependencies)
            if (cancelled := self._gate.cancelled) is not None and GRANT_OWNER.get() is None:
                return hooks.failure(task, cancelled)
            if self._usual is None and not (task.annotations and "penstock" in task.annotations):
                return await original(key, stimulus_id=stimulus_id)
            one = self._executing[key] = self._describe(task)
            EXECUTING.set(one)
            try:
                if one.kind is None or self._goes_through_pool(task):
                    return await original(key, stimulus_id=stimulus_id)
                async with self._during(self._withdrawable(one, one.kind)):
                    return await original(key, stimulus_id=stimulus_id)
            except JobCancelled as error:
                return hooks.failure(task, error)
            except asyncio.CancelledError:
                if not one.withdrawn:
                    raise
                # It was unwanted when it was withdrawn; if that has changed, it is scheduled again.
                return hooks.reschedule(key)
            finally:
                if self._executing.get(key) is one:
                    del self._executing[key]

        return execute

    def _gather_dep(self, original: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def gather_dep(worker: str, to_gather: Any, total_nbytes: int, *, stimulus_id: str) -> Any:
            async with self._held(_NETWORK, total_nbytes, "gather_dep"):
                return await original(worker, to_gather, total_nbytes, stimulus_id=stimulus_id)

        return gather_dep

    def _goes_through_pool(self, task: Any) -> bool:
        executor = task.annotations.get("executor", "default") if task.annotations else "default"
        gated = self._pool is not None and self._worker.executors.get(executor) is self._pool
        return gated and not hooks.is_coroutine(task.run_spec)

    def _describe(self, task: Any) -> DaskMonotask:
        one = DaskMonotask(self._usual, stage=hooks.group(task.key))
        said = task.annotations.get("penstock") if task.annotations else None
        input_bytes = None
        if isinstance(said, dict):
            usual = _CPU if said.get("job") else self._usual
            one.kind, one.stage = _kind(said.get("kind", usual)), str(said.get("stage") or one.stage)
            input_bytes = said.get("input_bytes")
        if isinstance(input_bytes, int | float) and 0 <= input_bytes < LIMIT:
            one.input_bytes = int(input_bytes)
        elif task.dependencies:
            one.input_bytes = _sendable(sum(each.nbytes or 0 for each in task.dependencies))
        else:
            prefix = task.prefix
            one.input_bytes, measure = self._estimates.expect(prefix)
            if measure:
                one.learn = lambda read_bytes: self._estimates.learn(prefix, read_bytes)
        return one

    # ------------------------------------------------------------ holding a slot in the event loop

    def _held(self, kind: ResourceKind, input_bytes: int, stage: str) -> AbstractAsyncContextManager[None]:
        return self._during(self._slot_for_bytes(kind, input_bytes, stage))

    @asynccontextmanager
    async def _sending(self, input_bytes: int) -> AsyncIterator[None]:
        """Hold the network for an attempt to send shards of a P2P shuffle; log why it failed, as nothing else may."""
        async with self._held(_NETWORK, input_bytes, "p2p-send"):
            try:
                yield
            except OSError as error:
                _LOG.warning("a shuffle waits up to 30 s to send shards again: %s: %s", type(error).__name__, error)
                raise

    @asynccontextmanager
    async def _during(self, asked: Awaitable[Slot | None]) -> AsyncIterator[None]:
        """Wait for the slot that is asked for, and hold it during the body."""
        self._busy.enter()
        slot, failed = None, True
        try:
            slot = await asked
            yield
            failed = False
        finally:
            if slot is not None:
                slot.release(failed=failed)
            self._busy.leave()

    async def _slot_to_spill(self, input_bytes: int) -> Slot | None:
        """Wait for the disk, for a bounded time, as spilling frees memory."""
        patience_s = self._settings.spill_patience_s
        try:
            async with asyncio.timeout(patience_s):
                return await self._slot_for_bytes(_DISK, input_bytes, "spill")
        except TimeoutError:
            _LOG.info("spilling without a grant: the disk was busy for %g s", patience_s)
            return None

    async def _slot_for_bytes(self, kind: ResourceKind, input_bytes: int, stage: str) -> Slot | None:
        """Wait for a slot to move or store bytes. Those of a cancelled job need none, and its tasks fail: a transfer
        that raised would leave the tasks that wait for it in Dask for ever.
        """
        try:
            return await self._slot(kind, input_bytes, stage)
        except JobCancelled:
            return None

    async def _withdrawable(self, one: DaskMonotask, kind: ResourceKind) -> Slot | None:
        waiting = asyncio.ensure_future(self._slot(kind, one.input_bytes, one.stage))
        one.withdraw = waiting.cancel
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and (slot := waiting.result()) is not None:
                slot.cancel()  # granted at the moment when the worker closes
            raise

    async def _slot(self, kind: ResourceKind, input_bytes: int, stage: str) -> Slot | None:
        try:
            return await self._gate.acquire_async(kind, _sendable(input_bytes), stage=stage)
        except (RpcError, RuntimeError) as error:
            refused(error)
            return None


def _sendable(size_bytes: int) -> int:
    """Return a size that a gate takes; Dask's are what the objects themselves report."""
    return min(size_bytes, LIMIT - 1)


def _kind(said: object) -> ResourceKind | None:
    """Parse the annotated kind: ``none`` or None is ungated; an unknown kind is CPU work, as for any task."""
    if said is None or said == "none":
        return None
    try:
        return ResourceKind(str(said))
    except ValueError:
        return _CPU
