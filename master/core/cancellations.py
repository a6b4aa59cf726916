"""Cancellation of jobs by their user or an operator: no further task starts, and running tasks are stopped.

The job's origin ends the job, as does every other node that serves it. Until the origin has confirmed, the master keeps
the job, so that it does not reappear after a lost connection. The cancellation is stored with the finished jobs, for
nodes that were away.
"""

from __future__ import annotations

from dataclasses import dataclass

from master.core.dues import Dues
from master.core.events import CancelAsked
from master.core.finished_jobs import FinishedJobs
from master.core.job import Job
from master.core.membership import Membership
from master.core.outbox import Outbox
from master.core.task_lifecycle import TaskLifecycle
from penstock.wire import master_api as api


@dataclass(eq=False, repr=False)
class Cancellations:
    """Stops cancelled jobs on all their nodes."""

    _dues: Dues
    _past: FinishedJobs
    _members: Membership
    _outbox: Outbox
    _tasks: TaskLifecycle

    def asked(self, event: CancelAsked) -> None:
        """Cancel a current job; ignore a request for a finished or unknown one."""
        job = self._members.jobs.get(event.job)
        if job is not None and job.described:
            self._cancel(job, event.by)

    def _cancel(self, job: Job, by: str) -> None:
        """Stop the job everywhere. ``by`` names the requester; the first requester is kept."""
        job.cancel(by)
        for node in dict.fromkeys([job.origin, *job.hosts]):
            self._tell(node, job.job, job.cancelled_by)  # sent before the reports that its tasks ended
        self.stop(job)
        self._outbox.explain("job cancelled", job=job.job, name=job.name, user=job.user, by=job.cancelled_by)
        self._dues.place_and_admit()

    def stop(self, job: Job) -> None:
        """Withdraw the job's waiting and running tasks."""
        why = f"cancelled by {job.cancelled_by}"
        for task in list(job.tasks.values()):
            self._tasks.cancel(job, task, why)

    def _tell(self, node: str, job: str, by: str) -> None:
        """Tell a node to end its part of a job, and to tell the job's clients who cancelled it."""
        self._outbox.propose(node, api.CancelJob(job=job, by=by, why=f"cancelled by {by}"))

    def registered(self, message: api.Register, jobs: list[Job]) -> None:
        """Repeat cancellations to a node that is back, for jobs whose cancellation it has not received or not
        confirmed.
        """
        for job in jobs:
            past = self._past.get(job.job)
            by = job.cancelled_by or (past.cancelled_by if past is not None else "")
            self._past.forget(job.job)
            if by:
                self._cancel(job, by)
        for use in message.load.jobs:
            past = self._past.get(use.job)
            if past is not None and past.cancelled_by and use.job not in self._members.jobs:
                self._tell(message.node, use.job, past.cancelled_by)
                continue
            known = self._members.jobs.get(use.job)
            if known is not None and known.cancelled_by and known.origin != message.node:
                self._tell(message.node, use.job, known.cancelled_by)
