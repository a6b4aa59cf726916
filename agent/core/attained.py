"""The service that jobs attain on this node, in container-seconds: what the master orders them by (LAS_MQ §3.2)."""

from __future__ import annotations

from agent.queues import MonotaskQueues
from penstock.wire.master_api import JobUse


class Attained:
    """Σ slots × time of each job, x · t in the paper's Eq. (6), exactly: the queues count it as slots come and go."""

    def __init__(self, queues: MonotaskQueues) -> None:
        self._queues = queues

    def report(self, now: float) -> list[JobUse]:
        """Of the jobs of which something may have changed since the last report."""
        return [
            JobUse(job=job.id, service_s=job.service_s, running=job.running) for job in self._queues.take_served(now)
        ]

    def tell_all(self) -> None:
        """The next report names every job."""
        self._queues.count_all()
