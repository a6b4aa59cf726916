"""A job was cancelled at the master: what this node has of it ends, and its clients are told who did it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core import leaving
from agent.core.instructions import Instruction, Notify
from agent.core.records import Job
from penstock.wire.jobs_api import CancelledBy
from penstock.wire.master_api import CancelJob

if TYPE_CHECKING:
    from agent.core.node import Node


def cancelled(node: Node, job: Job, decision: CancelJob, now: float) -> list[Instruction]:
    """Its queues, slots, tasks and containers here are given back, wherever it was registered."""
    told = CancelledBy(job=decision.job, by=decision.by)
    notes: list[Instruction] = [Notify(session, "job_cancelled", told) for session in sorted(job.sessions)]
    return notes + leaving.end_job(node, job, now, f"cancelled by {decision.by}")
