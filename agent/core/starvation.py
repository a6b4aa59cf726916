"""Slots held too long, and waiting times of jobs, which the journal keeps over restarts."""

from __future__ import annotations

from agent.core.instructions import Explain, Instruction, Notify, Record
from agent.core.records import Waits
from agent.queues import Monotask, MonotaskQueues, overdue
from penstock.wire.jobs_api import SlotTakenBack

ROOM = "waits"  # the journal's room
KEY = "all"
#: How often waits are journaled, as a part of ``job_wait_max_s``.
_PARTS = 10


class WaitsJournal:
    """The journaled waiting times of the jobs in the queues."""

    def __init__(self) -> None:
        self._recorded = Waits()
        self._record_at = 0.0  # monotonic

    def recovered(self, queues: MonotaskQueues, waits: Waits | None, at: float, now: float) -> None:
        """Restore waiting times after a restart, as far as the host's clock tells."""
        self._recorded = waits or Waits()
        for job in queues.jobs():
            since = self._recorded.since.get(job.id, {})
            job.kept_waits = {kind: now - max(0.0, at - began) for kind, began in since.items()}

    def sampled(self, queues: MonotaskQueues, job_wait_max_s: float, at: float, now: float) -> list[Instruction]:
        """Journal jobs that have waited since before the last record; others lose little by starting over.

        ``at`` is Unix time.
        """
        if now < self._record_at:
            return []
        interval_s = min(job_wait_max_s / _PARTS, 3.0)
        self._record_at = now + interval_s
        since: dict[str, dict[int, float]] = {}
        for job in queues.jobs():
            waits = {
                resource.index: round(at - (now - job.last_grant[resource.index]), 1)
                for resource in queues.resources()
                if now - job.last_grant[resource.index] >= interval_s and resource.first(job) is not None
            }
            waits |= {kind: round(at - (now - began), 1) for kind, began in job.kept_waits.items()}
            if waits:
                since[job.id] = waits
        fresh = Waits(since)
        if fresh == self._recorded:
            return []
        self._recorded = fresh
        return [Record(ROOM, KEY, fresh if since else None)]


def take_back(queues: MonotaskQueues, held_max_s: float, now: float) -> tuple[list[Instruction], list[Monotask]]:
    """Take back slots held for more than ``held_max_s`` (0: never) that starving jobs need.

    Returns what to tell their holders, and the monotasks that were granted the slots.
    """
    if not held_max_s:
        return [], []
    taken, granted = overdue.take_back(queues, now, held_max_s)
    instructions: list[Instruction] = []
    for each in taken:
        monotask = each.monotask
        why = (
            f"its {monotask.kind} slot was held for {each.held_s:.0f} s, and job {each.waiting} of another user "
            f"had waited {each.waited_s:.0f} s for its turn; slot_held_max_s is {held_max_s:g}"
        )
        params = SlotTakenBack(job=monotask.job, id=monotask.id, kind=monotask.kind, why=why)
        instructions.append(Notify(monotask.session, params))
        instructions.append(Explain("slot taken back", {"job": monotask.job, "monotask": monotask.id, "why": why}))
    return instructions, granted
