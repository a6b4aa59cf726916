"""The plugins, for use from code instead of a line of configuration; the preload uses them, too."""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from dask.typing import Key
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin

from penstock.engines.dask import hooks
from penstock.engines.dask.annotated_tasks import AnnotatedTasks
from penstock.engines.dask.gating import MATTER, GatedWorker
from penstock.engines.dask.jobs import CLOSE_S, ClusterGate, new_gate
from penstock.engines.dask.lending import Lender
from penstock.engines.dask.progress import Reporter, answer_at
from penstock.engines.dask.settings import Settings, checked

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler
    from distributed.worker import Worker

_LOG = logging.getLogger(__name__)
#: Shared by the preload, the plugin and the scheduler's plugin, so that a worker is gated only once.
NAME = "penstock"


_Key = tuple[int, str, str]


class _Gates:
    """The gates of this process: one for each event loop, socket and job name. It may have several workers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reporters: dict[_Key, Reporter] = {}

    async def enter(self, worker: Worker, settings: Settings) -> tuple[_Key, ClusterGate]:
        """Add a worker to its gate, until :meth:`leave` with the returned key."""
        key = id(asyncio.get_running_loop()), settings.socket, settings.job or worker.scheduler.address
        with self._lock:
            if (shared := self._reporters.get(key)) is not None:
                shared.gate.workers.append(worker)
                return key, shared.gate
            gate = ClusterGate(worker, settings)
            self._reporters[key] = Reporter(gate)
        await gate.start()
        return key, gate

    def leave(self, key: _Key, worker: Worker) -> threading.Thread | None:
        """Remove a worker, from any thread. Return the thread that closes the gate, if it was the last worker."""
        with self._lock:
            reporter = self._reporters[key]
            if reporter.gate.leave(worker):
                return None
            del self._reporters[key]
        reporter.stop()
        # The caller may be the gate's own thread, which must not close the gate itself.
        closing = threading.Thread(target=reporter.gate.close, name="penstock-close", daemon=True)
        closing.start()
        return closing


_GATES = _Gates()


class PenstockWorkerPlugin(WorkerPlugin):
    """Gates a worker: its tasks, transfers, P2P shuffles and spilling wait for their grants from the host's agent.

    ``client.register_plugin(PenstockWorkerPlugin())`` gates all workers of a cluster, including later ones. Settings
    are read from Dask's configuration in the worker; keyword arguments override them.
    """

    name = NAME
    idempotent = True

    def __init__(self, **settings: Any) -> None:
        """``settings`` are fields of :class:`penstock.engines.dask.settings.Settings`.

        Raises:
            ValueError: an unknown setting, or an invalid value.
        """
        checked(settings)
        self._given = settings
        self._key: _Key | None = None
        self._gating: GatedWorker | None = None
        self._annotated_tasks: AnnotatedTasks | None = None

    async def setup(self, worker: Worker) -> None:
        """Called by the worker."""
        try:
            settings = Settings.from_config(**self._given)
        except ValueError as error:  # Dask would only log a traceback, and work would go on anyway
            _LOG.error("nothing is gated, and work goes on without grants: %s", error)
            return
        if not settings.enabled:
            return
        self._key, gate = await _GATES.enter(worker, settings)
        self._gating = GatedWorker(worker, gate, settings)
        self._gating.install()
        self._annotated_tasks = AnnotatedTasks(
            worker, partial(new_gate, worker, settings, guest=True), settings.patience_s
        )
        self._annotated_tasks.install()
        hooks.report()
        _LOG.info("gated by the agent at %s: job %s", settings.socket or "its usual place", gate.job or "(not yet)")

    async def teardown(self, worker: Worker) -> None:
        """Called by the worker when it closes, or when the plugin is removed."""
        gating, annotated_tasks, key = self._gating, self._annotated_tasks, self._key
        self._gating = self._annotated_tasks = None
        if gating is None or annotated_tasks is None or key is None:
            return

        closing: list[threading.Thread] = []

        def idle() -> None:
            annotated_tasks.close()
            if (thread := _GATES.leave(key, worker)) is not None:
                closing.append(thread)

        annotated_tasks.remove()
        gating.remove(idle)
        for thread in closing:  # the process must not end before the agent knows that it left properly
            await asyncio.to_thread(thread.join, 2 * CLOSE_S)

    def transition(self, key: Key, start: Any, finish: Any, **_: Any) -> None:
        """Called by the worker."""
        if finish in MATTER and self._gating is not None:  # two of a task's six transitions
            self._gating.transition(key, start, finish)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the settings only."""
        return partial(PenstockWorkerPlugin, **self._given), ()


class PenstockSchedulerPlugin(SchedulerPlugin):
    """Gates all workers of a scheduler, as the workers' preload does. They need Penstock installed."""

    name = NAME

    def __init__(self, **settings: Any) -> None:
        """As for :class:`PenstockWorkerPlugin`."""
        self._worker_plugin = PenstockWorkerPlugin(**settings)
        self._given = settings
        self._lender: Lender | None = None

    async def start(self, scheduler: Scheduler) -> None:
        """Called by the scheduler."""
        answer_at(scheduler)
        self._lender = lend_this(lambda: scheduler.get_metadata(["penstock"], default=None), **self._given)
        await scheduler.register_worker_plugin(
            comm=None, plugin=pickle.dumps(self._worker_plugin), name=NAME, idempotent=True
        )

    async def close(self) -> None:
        """Called by the scheduler."""
        if self._lender is not None:
            self._lender.stop()


def lend_this(metadata: Callable[[], Any], *, starts_workers: bool = False, **given: Any) -> Lender | None:
    """Lend this process to the job of this host's workers, if the settings allow it.

    A process that ``starts_workers`` is not lent where each of them has a job, and so a rank, of its own.
    """
    try:
        settings = Settings.from_config(**given)
    except ValueError as error:
        _LOG.error("this process is not ranked: %s", error)
        return None
    shares = settings.share_job or not starts_workers
    return Lender(settings, metadata) if settings.enabled and settings.rank and shares else None
