"""The part of an agent's message ``job_ended`` with which the master can list a job that it does not know."""

from __future__ import annotations

from penstock.wire.agent_api import Params, StageProgress
from penstock.wire.cluster_api import Count
from penstock.wire.jobs_api import TaskFailure


class JobAtEnd(Params, frozen=True):
    """A job at its end, as its origin knows it. Times are Unix time at the origin. ``undone``: not all tasks that the
    master was asked to place had ended; of the ``tasks_ended``, some failed (``failures`` are the first twenty) or were
    cancelled. ``cancelled_by``: the user who cancelled the job at the master."""

    name: str
    user: str
    submitted_at: float
    ended_at: float = 0.0
    reservation: str = ""
    stages: list[StageProgress] = []
    undone: bool = False
    tasks_ended: Count = 0
    tasks_failed: Count = 0
    tasks_cancelled: Count = 0
    failures: list[TaskFailure] = []
    cancelled_by: str = ""
