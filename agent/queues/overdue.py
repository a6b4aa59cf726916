"""Take back slots that a user does not return while a job of another user starves.

The monotask is not stopped: it runs on to its end without a slot. Long, honest work thus loses nothing, and the slot
goes to the starving job. A user's overdue monotasks and held slots together never exceed the number of slots, so a user
that completes nothing ends up without any slot (:mod:`agent.queues.debts`).
"""

from __future__ import annotations

from typing import NamedTuple

from agent.queues.debts import parts
from agent.queues.job_queue import JobQueue
from agent.queues.monotask import COMMANDS, GRANTED, TAKE_BACK, Monotask
from agent.queues.queues import MonotaskQueues
from agent.queues.resource import Resource


class TakenBack(NamedTuple):
    """A monotask that lost its slot, how long it held the slot, and the job that waited for it."""

    monotask: Monotask
    held_s: float
    waiting: str
    waited_s: float


def take_back(queues: MonotaskQueues, now: float, held_max_s: float) -> tuple[list[TakenBack], list[Monotask]]:
    """Take slots held longer than ``held_max_s``, one per starving job; return the slots taken and the grants made.

    The slots held longest go first. A job starves if the last :meth:`MonotaskQueues.tick` found it starving.
    """
    taken: list[TakenBack] = []
    touched: set[Resource] = set()
    for resource in queues.resources():
        held = _held(queues, resource, now - held_max_s) if resource.starving else []
        served: dict[JobQueue, None] = {}
        for job in resource.starving:
            owner, monotask = next(((o, m) for o, m in held if o.user != job.user and m.state is GRANTED), (job, None))
            first = resource.first(job)
            if monotask is None or first is None or resource.debts.forbid(job.user, first):
                continue  # no slot to take, no monotask to grant it to, or the user's debt forbids any grant
            held_s = now - monotask.granted_at
            resource.debts.begin(owner.user, monotask, _held_parts(queues, resource, owner.user))
            resource.overdue += 1
            resource.release(owner, monotask, held_s)
            resource.taken_back += 1
            monotask.state = TAKE_BACK[monotask.state]
            monotask.lease_until = 0.0  # the slot is gone, so the lease is too
            taken.append(TakenBack(monotask, held_s, job.id, now - job.last_grant[resource.index]))
            touched.add(resource)
            served[job] = None
        if served:  # before the starving jobs of the users that hold the slots
            resource.starving = [*served, *(job for job in resource.starving if job not in served)]
    return taken, queues.grant_free(touched, now)


def _held(queues: MonotaskQueues, resource: Resource, before: float) -> list[tuple[JobQueue, Monotask]]:
    """Return the monotasks of connections that have held a slot since before ``before``, the longest first."""
    users = {job.user for job in resource.starving}
    found = [
        (job, monotask)
        for job in queues.jobs()
        if job.running and users - {job.user}
        for session, live in job.live.items()
        if session != COMMANDS  # the agent observes the ends of commands itself
        for monotask in live.values()
        if monotask.kind is resource.kind and monotask.state is GRANTED and monotask.granted_at < before
    ]
    return sorted(found, key=lambda one: (one[1].granted_at, one[0].rank))


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
