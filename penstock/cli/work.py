"""The work of ``penstock submit``, from a file or from options."""

from __future__ import annotations

import msgspec

from penstock.model.work import OpportunisticJob, TaskRequest
from penstock.opgraph import TaskGraph


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A checked job: ``graph`` is the order of tasks, ``requests`` are their placement requests by task."""

    name: str
    graph: TaskGraph
    requests: dict[str, TaskRequest]
    opportunistic: OpportunisticJob
    priority: float = 0.0
    fail_fast: bool = False
    given_memory_bytes: int | None = None

    def memory_bytes(self, host_bytes: int) -> int:
        """Return M(j) of Ursa §4.2.1: the given value, or an estimate from the graph for a host of this size."""
        estimate = min(self.graph.largest_level_bytes(), host_bytes)
        return estimate if self.given_memory_bytes is None else self.given_memory_bytes
