"""The cluster at a glance, for who asks through his host's agent (``penstock top``, ``penstock status --cluster``)."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from master.core import events as e
from penstock.model.container import EndedBy
from penstock.wire.agent_api import Status
from penstock.wire.master_api import CommandEnded
from penstock.wire.reservation_api import OnBehalf

#: A screen of a large cluster, and a message that is far from too long; ``GET /status`` has all.
MOST_NODES, MOST_JOBS, MOST_PREEMPTIONS = 500, 200, 20
#: So old may be what is answered, seconds.
_FRESH_S = 1.0
#: What of the document is for everybody; the rest (who changed what, which reservation is promised what) for operators.
_FOR_ALL = frozenset({"version", "started_at", "resources", "tasks", "memory", "decisions", "ordering", "models"})


class Overview:
    """Remembers the latest preemptions; everything else is in the status document. However many ask however often, that
    is made once a second."""

    def __init__(self, status: Callable[[], Mapping[str, Any]], clock: Callable[[], float] = time.monotonic) -> None:
        self._status = status
        self._clock = clock
        self._made: Mapping[str, Any] = {}
        self._made_at = -math.inf
        self._preempted: deque[dict[str, Any]] = deque(maxlen=MOST_PREEMPTIONS)

    def heard(self, event: e.Said | e.Answered, at: float) -> None:
        """What a node said, before it is dealt with; ``at`` is Unix time."""
        if not isinstance(event, e.Said) or not isinstance(said := event.message, CommandEnded):
            return
        if said.ended.by is EndedBy.PREEMPTED:
            one = {"at": at, "node": event.node, "job": said.job, "task": said.task, "reason": said.ended.reason}
            self._preempted.append(one)

    def answer(self, asked: OnBehalf) -> Status:
        """What this user may see: nodes and sums, and of jobs his own; operators see everybody's."""
        whole = self._whole()
        nodes, jobs = whole["nodes"], whole["jobs"]
        rest = whole if asked.operator else {key: said for key, said in whole.items() if key in _FOR_ALL}
        seen = {job: row for job, row in jobs.items() if asked.operator or row["user"] == asked.user}
        waiting_first = sorted(seen, key=lambda job: seen[job]["state"] != "waiting")
        return Status(
            status={
                **rest,
                "nodes": {name: _node(nodes[name]) for name in list(nodes)[:MOST_NODES]},
                "jobs": {job: seen[job] for job in waiting_first[:MOST_JOBS]},
                "preemptions": [one for one in self._preempted if asked.operator or one["job"] in seen],
                "more": {
                    "nodes": max(0, len(nodes) - MOST_NODES),
                    "jobs": max(0, len(seen) - MOST_JOBS),
                    "jobs_of_others": len(jobs) - len(seen),
                },
            }
        )

    def _whole(self) -> Mapping[str, Any]:
        now = self._clock()
        if now - self._made_at >= _FRESH_S:
            self._made, self._made_at = self._status(), now
        return self._made


def _node(row: Mapping[str, Any]) -> dict[str, Any]:
    """Without what its load says of single jobs: those have rows of their own, for who may see them."""
    load = row.get("load", {})
    return {**row, "load": {key: said for key, said in load.items() if key != "jobs"}}
