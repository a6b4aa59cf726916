"""A job was cancelled at the master: end its work on this node, and notify its clients."""

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
    """End the job's queues, slots, tasks and containers here, wherever the job was registered."""
    cancelled_by = CancelledBy(job=decision.job, by=decision.by)
    notes: list[Instruction] = [Notify(session, "job_cancelled", cancelled_by) for session in sorted(job.sessions)]
    return notes + leaving.end_job(node, job, now, f"cancelled by {decision.by}")
