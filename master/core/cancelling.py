"""Cancellation of jobs by their user or an operator: no further task starts, and running tasks are stopped.

The job's origin ends the job, as does every other node that serves it. Until the origin has confirmed, the master keeps
the job, so that it does not reappear after a lost connection. The cancellation is stored with the finished jobs, for
nodes that were away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from master.core.events import CancelAsked
from master.core.records import Job
from penstock.model import Ended, EndedBy
from penstock.wire import master_api as api

if TYPE_CHECKING:
    from master.core.cluster import Cluster


def asked(cluster: Cluster, event: CancelAsked) -> None:
    """Cancel a current job; ignore a request for a finished or unknown one."""
    job = cluster.members.jobs.get(event.job)
    if job is not None:
        cancel(cluster, job, event.by)


def cancel(cluster: Cluster, job: Job, by: str) -> None:
    """Stop the job everywhere. ``by`` names the requester; the first requester is kept."""
    job.cancelled_by = job.cancelled_by or by
    job.admitted, job.admitted_at, job.waits_why = False, None, ""
    for node in dict.fromkeys([job.origin, *job.hosts]):
        tell(cluster, node, job.job, job.cancelled_by)  # sent before the reports that its tasks ended
    stop(cluster, job)
    cluster.outbox.explain("job cancelled", job=job.job, name=job.name, user=job.user, by=job.cancelled_by)
    cluster.dues.place_and_admit()


def stop(cluster: Cluster, job: Job) -> None:
    """Withdraw the job's waiting and running tasks."""
    why = f"cancelled by {job.cancelled_by}"
    for task in list(job.tasks.values()):
        holder, held = cluster.members.nodes.get(task.node), cluster.members.held_of(task)
        if holder is not None and held is not None:
            cluster.tasks.withdraw(holder, held, why)
            if held.command:
                task.unwanted = True  # it ends when its node reports how
                continue
        cluster.tasks.end(job, task, Ended(by=EndedBy.CANCELLED, reason=why))


def tell(cluster: Cluster, node: str, job: str, by: str) -> None:
    """Tell a node to end its part of a job, and to tell the job's clients who cancelled it."""
    cluster.outbox.propose(node, api.CancelJob(job=job, by=by, why=f"cancelled by {by}"))


def registered(cluster: Cluster, message: api.Register, jobs: list[Job]) -> None:
    """Repeat cancellations to a node that is back, for jobs whose cancellation it has not received or not confirmed."""
    for job in jobs:
        past = cluster.past.get(job.job)
        by = job.cancelled_by or (past.cancelled_by if past is not None else "")
        cluster.past.forget(job.job)
        if by:
            cancel(cluster, job, by)
    for use in message.load.jobs:
        past = cluster.past.get(use.job)
        if past is not None and past.cancelled_by and use.job not in cluster.members.jobs:
            tell(cluster, message.node, use.job, past.cancelled_by)
        elif (
            (known := cluster.members.jobs.get(use.job)) is not None
            and known.cancelled_by
            and known.origin != message.node
        ):
            tell(cluster, message.node, use.job, known.cancelled_by)
