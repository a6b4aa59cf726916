"""Agents' queues without Ursa's monotask ordering: first come, first served (Ursa §5.2, Table 6, "JO")."""

from __future__ import annotations

from collections import deque

from agent.core.settings import NodeSettings
from agent.queues import Monotask, MonotaskQueues
from agent.queues.job_queue import JobQueue
from agent.queues.monotask import QUEUED
from agent.queues.resource import Resource


class _Line(Resource):
    """One line of all jobs' monotasks, in the order of arrival. Jobs' priorities, stages and sizes do not matter."""

    __slots__ = ("line",)

    line: deque[tuple[JobQueue, Monotask]]

    def enqueue(self, job: JobQueue, monotask: Monotask, stage: str, sequence: int, now: float, known: int) -> None:
        """Append a monotask to the line."""
        self.queued += 1
        self.line.append((job, monotask))

    def fill(self, now: float, granted: list[Monotask], lease_s: float) -> None:
        """Grant monotasks from the front while slots are free."""
        while self.line and self.free > 0:
            job, monotask = self.line.popleft()
            if monotask.state is QUEUED:
                self.queued -= 1
                self.hold(job, monotask, now)
                granted.append(monotask)


class FirstComeQueues(MonotaskQueues):
    """The queues of a node, first come, first served, without leases."""

    def __init__(self, settings: NodeSettings) -> None:
        super().__init__(
            settings.capacity, network_bypass_bytes=settings.network_bypass_bytes, rate_window_s=settings.rate_window_s
        )
        for kind, resource in self._resources.items():
            self._resources[kind] = line = _Line(kind, resource.slots, settings.rate_window_s)
            line.line = deque()
