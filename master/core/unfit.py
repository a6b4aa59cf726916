"""Tasks that no node of the cluster could ever hold."""

from __future__ import annotations

from dataclasses import dataclass

from master.core.admission import Admission
from master.core.executors import Executors
from master.core.membership import Membership
from master.core.settings import CurrentSettings
from master.core.snapshot import Snapshots
from master.core.table import NodeTable
from master.core.task_lifecycle import TaskLifecycle
from penstock.model import Ended, EndedBy


@dataclass(eq=False, repr=False)
class UnfitTasks:
    """Refuses tasks that are too large for every node, and tasks of jobs that are too large for the cluster."""

    _settings: CurrentSettings
    _table: NodeTable
    _members: Membership
    _snapshots: Snapshots
    _executors: Executors
    _tasks: TaskLifecycle
    _admission: Admission

    def refuse(self, now: float) -> None:
        """End each task that no node can ever hold: at once if the cluster is complete, else after
        ``node_timeout_s``.
        """
        if not self._members.ready_tasks or not len(self._table.here()):
            return
        timeout_s, shape = (
            0.0 if self._admission.complete(now) else self._settings.current.node_timeout_s,
            self._table.shape,
        )
        for job in list(self._members.jobs.values()):
            if job.fits_in == shape and job.admitted:
                continue
            too_large = self._admission.never_fits(job) if job.described else ""
            job.fits_in = shape
            for (_, opportunistic), tasks in list(job.ready.items()):
                for task in list(tasks.values()):
                    if task.fits_in == shape and not too_large:
                        continue
                    reason = not opportunistic and too_large
                    if not reason and not self._executors.foreseen(job, task):
                        reason = self._snapshots.unfit(task)
                    if not reason:  # an executor's forecast changes
                        task.unfit_since, task.fits_in = None, -1 if task.elastic else shape
                        job.fits_in = min(job.fits_in, task.fits_in)
                        continue
                    job.fits_in = -1
                    task.unfit_since = now if task.unfit_since is None else task.unfit_since
                    if not timeout_s or now - task.unfit_since > timeout_s:
                        self._tasks.end(job, task, Ended(by=EndedBy.REFUSED, reason=reason))
