"""A summary of the cluster for users, through their host's agent (``penstock top``, ``penstock status --cluster``)."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from msgspec import structs

from master.core import events as e
from master.http_documents import JobStatus, NodeStatus
from master.http_documents import Status as Document
from penstock.model.container import EndedBy
from penstock.model.job_state import JobStanding
from penstock.wire.agent_api import Status
from penstock.wire.master_api import CommandEnded
from penstock.wire.reservation_api import OnBehalf

#: One screen of a large cluster, in a message well below the size limit; ``GET /status`` has all.
MOST_NODES, MOST_JOBS, MOST_PREEMPTIONS = 500, 200, 20
#: Largest age of an answer, seconds.
_FRESH_S = 1.0
#: The keys visible to all users; the others (changes by operators, promises of reservations) are for operators.
_FOR_ALL = frozenset({"version", "started_at", "resources", "tasks", "memory", "decisions", "ordering", "models"})


class Overview:
    """Stores the latest preemptions; everything else is in the status document, which is computed at most once a
    second.
    """

    def __init__(self, status: Callable[[], Document], clock: Callable[[], float] = time.monotonic) -> None:
        self._status = status
        self._clock = clock
        self._made: Document | None = None
        self._made_at = -math.inf
        self._preempted: deque[dict[str, Any]] = deque(maxlen=MOST_PREEMPTIONS)

    def received(self, event: e.Received | e.Answered, at: float) -> None:
        """Note a node's message before it is handled; ``at`` is Unix time."""
        if not isinstance(event, e.Received) or not isinstance(said := event.message, CommandEnded):
            return
        if said.ended.by is EndedBy.PREEMPTED:
            one = {"at": at, "node": event.node, "job": said.job, "task": said.task, "reason": said.ended.reason}
            self._preempted.append(one)

    def answer(self, asked: OnBehalf) -> Status:
        """Return the part visible to this user: nodes and sums, and the user's own jobs; operators see all jobs."""
        now = self._clock()
        if self._made is None or now - self._made_at >= _FRESH_S:
            self._made, self._made_at = self._status(), now
        nodes, jobs, whole = self._made.nodes, self._made.jobs, structs.asdict(self._made)
        rest = whole if asked.operator else {key: said for key, said in whole.items() if key in _FOR_ALL}
        seen = {job: row for job, row in jobs.items() if asked.operator or row.user == asked.user}
        return Status(
            status={
                **rest,
                "nodes": {name: _without_jobs(node) for name, node in islice(nodes.items(), MOST_NODES)},
                "jobs": {job: seen[job] for job in waiting_first(seen)},
                "preemptions": [one for one in self._preempted if asked.operator or one["job"] in seen],
                "more": {
                    "nodes": max(0, len(nodes) - MOST_NODES),
                    "jobs": max(0, len(seen) - MOST_JOBS),
                    "jobs_of_others": len(jobs) - len(seen),
                },
            }
        )


def waiting_first(jobs: Mapping[str, JobStatus]) -> list[str]:
    """Return at most :data:`MOST_JOBS` jobs, waiting ones first, because users ask about those."""
    return sorted(jobs, key=lambda job: jobs[job].state is not JobStanding.WAITING)[:MOST_JOBS]


def _without_jobs(node: NodeStatus) -> NodeStatus:
    """Remove the jobs from a node's load: they have rows of their own, visible to users with access."""
    return structs.replace(node, load=structs.replace(node.load, jobs=[]))
