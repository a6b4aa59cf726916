"""Slots whose holder does not give them back, while a job of another user has waited too long for its turn.

The monotask is not stopped: it goes on, completes when it does, and holds no slot any more. So honest long work loses
nothing, and the slot goes to the job that waits. Of one user as many as there are slots run on that way, less those
that he holds: who completes nothing ends without any (:mod:`agent.queues.debts`).
"""

from __future__ import annotations

from typing import NamedTuple

from agent.queues.debts import parts
from agent.queues.job_queue import JobQueue
from agent.queues.monotask import COMMANDS, GRANTED, OVERDUE, Monotask
from agent.queues.queues import MonotaskQueues
from agent.queues.resource import Resource


class TakenBack(NamedTuple):
    """A monotask that holds no slot any more, for how long it held one, and the job that waited so long."""

    monotask: Monotask
    held_s: float
    waiting: str
    waited_s: float


def take_back(queues: MonotaskQueues, now: float, held_max_s: float) -> tuple[list[TakenBack], list[Monotask]]:
    """Take slots that were held longer than ``held_max_s``, one for each job that starves; return also the grants.

    The slots held longest go first. Jobs starve as :meth:`MonotaskQueues.tick` last found.
    """
    taken: list[TakenBack] = []
    touched: set[Resource] = set()
    for resource in queues.resources():
        held = _held(queues, resource, now - held_max_s) if resource.starving else []
        served: dict[JobQueue, None] = {}
        for job in resource.starving:
            owner, monotask = next(((o, m) for o, m in held if o.user != job.user and m.state is GRANTED), (job, None))
            if monotask is None or _owes_too_much(resource, job):
                continue
            held_s = now - monotask.granted_at
            resource.debts.begin(owner.user, monotask, _held_parts(queues, resource, owner.user))
            resource.overdue += 1
            resource.release(owner, monotask, held_s)
            resource.taken_back += 1
            monotask.state = OVERDUE
            monotask.lease_until = 0.0  # there is no slot any more to be passed on
            taken.append(TakenBack(monotask, held_s, job.id, now - job.last_grant[resource.index]))
            touched.add(resource)
            served[job] = None
        if served:  # before those whose own user holds the slots
            resource.starving = [*served, *(job for job in resource.starving if job not in served)]
    return taken, queues.grant_free(touched, now)


def _held(queues: MonotaskQueues, resource: Resource, before: float) -> list[tuple[JobQueue, Monotask]]:
    """The monotasks of connections that hold a slot since before then, the longest first."""
    users = {job.user for job in resource.starving}
    found = [
        (job, monotask)
        for job in queues.jobs()
        if job.running and users - {job.user}
        for session, live in job.live.items()
        if session != COMMANDS  # the agent itself sees their ends
        for monotask in live.values()
        if monotask.kind is resource.kind and monotask.state is GRANTED and monotask.granted_at < before
    ]
    return sorted(found, key=lambda one: (one[1].granted_at, one[0].rank))


def _owes_too_much(resource: Resource, job: JobQueue) -> bool:
    """Whether nothing of the job may be granted, as its own user has not given back what was taken from him."""
    waiting = job.waiting[resource.index]
    return bool(waiting) and resource.debts.forbid(job.user, waiting[0][3])


def _held_parts(queues: MonotaskQueues, resource: Resource, user: str) -> int:
    return sum(
        parts(monotask)
        for job in queues.jobs()
        if job.user == user and job.running
        for session, live in job.live.items()
        if session != COMMANDS
        for monotask in live.values()
        if monotask.kind is resource.kind and monotask.state is GRANTED
    )
