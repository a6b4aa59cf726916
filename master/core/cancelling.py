"""A job is cancelled by its user, or by an operator: nothing of it is started any more, and what runs is stopped.

Its origin ends it, and every other node that serves it; until the origin has said so the job stays in the books, so
that it is not there again after a lost connection. What was cancelled is remembered with the jobs that are over, for
nodes that were away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from master.core import lifecycle
from master.core.events import CancelAsked
from master.core.records import Job
from penstock.model import Ended, EndedBy
from penstock.wire import master_api as api

if TYPE_CHECKING:
    from master.core.cluster import Cluster


def asked(cluster: Cluster, event: CancelAsked) -> None:
    """Of a job that is there; any other is over, or never was."""
    job = cluster.jobs.get(event.job)
    if job is not None:
        cancel(cluster, job, event.by)


def cancel(cluster: Cluster, job: Job, by: str) -> None:
    """Stop it everywhere; ``by`` is who wants that, the first who did."""
    job.cancelled_by = job.cancelled_by or by
    job.admitted, job.admitted_at, job.waits_why = False, None, ""
    for node in dict.fromkeys([job.origin, *job.hosts]):
        tell(cluster, node, job.job, job.cancelled_by)  # before it hears that its tasks ended
    stop(cluster, job)
    cluster.explain("job cancelled", job=job.job, name=job.name, user=job.user, by=job.cancelled_by)
    cluster.changed = cluster.room_changed = True


def stop(cluster: Cluster, job: Job) -> None:
    """What it wants, and what it runs: none of it any more."""
    why = f"cancelled by {job.cancelled_by}"
    for task in list(job.tasks.values()):
        holder, held = cluster.nodes.get(task.node), lifecycle.held_of(cluster, task)
        if holder is not None and held is not None:
            lifecycle.withdraw(cluster, holder, held, why)
            if held.command:
                task.unwanted = True  # it ends when its node says how
                continue
        lifecycle.end(cluster, job, task, Ended(by=EndedBy.CANCELLED, reason=why))


def tell(cluster: Cluster, node: str, job: str, by: str) -> None:
    """A node is to end what it has of a job, and to tell the job's clients who cancelled it."""
    cluster.propose(node, api.CancelJob(job=job, by=by, why=f"cancelled by {by}"))


def registered(cluster: Cluster, message: api.Register, jobs: list[Job]) -> None:
    """A node is back: what it has not heard of, or heard of and could not say, is said again."""
    for job in jobs:
        past = cluster.past.get(job.job)
        by = job.cancelled_by or (past.cancelled_by if past is not None else "")
        cluster.past.forget(job.job)
        if by:
            cancel(cluster, job, by)
    for use in message.load.jobs:
        past = cluster.past.get(use.job)
        if past is not None and past.cancelled_by and use.job not in cluster.jobs:
            tell(cluster, message.node, use.job, past.cancelled_by)
        elif (known := cluster.jobs.get(use.job)) is not None and known.cancelled_by and known.origin != message.node:
            tell(cluster, message.node, use.job, known.cancelled_by)
