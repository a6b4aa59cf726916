"""Slots that are held too long, and how long jobs have waited for theirs, which the journal keeps over restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from agent.core.instructions import Explain, Instruction, Notify, Record
from agent.queues import overdue
from penstock.wire.agent_api import Recall
from penstock.wire.jobs_api import SlotTakenBack

if TYPE_CHECKING:
    from agent.core.node import Node

ROOM = "waits"  # the journal's room
KEY = "all"
#: The journal is told this often, as a part of ``job_wait_max_s``.
_PARTS = 10


class Waits(msgspec.Struct, frozen=True):
    """Job → index of KINDS → Unix time since which the job has waited for its turn."""

    since: dict[str, dict[int, float]] = {}


class Turns:
    """What the tick keeps of the queues."""

    def __init__(self) -> None:
        self._recorded = Waits()
        self._record_at = 0.0  # monotonic

    def sampled(self, node: Node, at: float, now: float) -> list[Instruction]:
        """Find the jobs that have waited too long, and take slots back for them; journal how long jobs have waited."""
        node.queues.tick(now)
        return [*_take_back(node, now), *self._record(node, at, now)]

    def recovered(self, node: Node, waits: Waits | None, at: float, now: float) -> None:
        """After a restart: jobs that wait again have waited all the time, as far as the clock of the host tells."""
        self._recorded = waits or Waits()
        for job in node.queues.jobs():
            since = self._recorded.since.get(job.id, {})
            job.kept_waits = {kind: now - max(0.0, at - began) for kind, began in since.items()}

    def _record(self, node: Node, at: float, now: float) -> list[Instruction]:
        """Of jobs that wait since before the last record; others lose little if they begin anew."""
        if now < self._record_at:
            return []
        interval_s = min(node.settings.job_wait_max_s / _PARTS, 3.0)
        self._record_at = now + interval_s
        since: dict[str, dict[int, float]] = {}
        for job in node.queues.jobs():
            waits = {
                kind: round(at - (now - job.last_grant[kind]), 1)
                for kind, waiting in enumerate(job.waiting)
                if waiting and now - job.last_grant[kind] >= interval_s
            }
            waits |= {kind: round(at - (now - began), 1) for kind, began in job.kept_waits.items()}
            if waits:
                since[job.id] = waits
        fresh = Waits(since)
        if fresh == self._recorded:
            return []
        self._recorded = fresh
        return [Record(ROOM, KEY, fresh if since else None)]


def recalls(node: Node) -> list[Instruction]:
    """Tell connections of leases that end, as a job that goes first waits, and of idle slots that are called back."""
    return [
        Notify(session, "recall", Recall(job=name, kind=kind, idle=only is not None))
        for name, kind, only in node.queues.take_recalled()
        if (job := node.jobs.get(name)) is not None
        for session in (sorted(job.sessions) if only is None else (only,))
    ]


def _take_back(node: Node, now: float) -> list[Instruction]:
    held_max_s = node.settings.slot_held_max_s
    if not held_max_s:
        return []
    taken, granted = overdue.take_back(node.queues, now, held_max_s)
    instructions: list[Instruction] = []
    for each in taken:
        monotask = each.monotask
        why = (
            f"its {monotask.kind} slot was held for {each.held_s:.0f} s, and job {each.waiting} of another user "
            f"had waited {each.waited_s:.0f} s for its turn; slot_held_max_s is {held_max_s:g}"
        )
        params = SlotTakenBack(job=monotask.job, id=monotask.id, kind=monotask.kind, why=why)
        instructions.append(Notify(monotask.session, "slot_taken_back", params))
        instructions.append(Explain("slot taken back", {"job": monotask.job, "monotask": monotask.id, "why": why}))
    return instructions + node.granted(granted, now)
