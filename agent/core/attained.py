"""The service that jobs attain on this node, in container-seconds: what the master orders them by (LAS_MQ §3.2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent.queues import MonotaskQueues
from penstock.wire.master_api import JobUse


@dataclass(slots=True)
class _Seen:
    service_s: float = 0.0
    running: int = 0
    at: float = 0.0
    told: JobUse | None = None


class Attained:
    """Σ slots × time of each job, x · t in the paper's Eq. (6), from looks at how many slots it holds.

    A look is taken with every sample and every heartbeat; between two of them the mean of both counts. The hot path
    pays nothing for it.
    """

    def __init__(self, queues: MonotaskQueues) -> None:
        self._queues = queues
        self._seen: dict[str, _Seen] = {}

    def look(self, jobs: Iterable[str], now: float) -> None:
        """Count the slots that each job holds; jobs that are no longer here are forgotten."""
        before, self._seen = self._seen, {}
        for job in jobs:
            seen = before.get(job) or _Seen(at=now)
            running = self._queues.job_counts(job)["running"]
            seen.service_s += (now - seen.at) * (seen.running + running) / 2
            seen.running, seen.at = running, now
            self._seen[job] = seen

    def report(self, jobs: Iterable[str], now: float) -> list[JobUse]:
        """Look, and name the jobs of which something changed since the last report."""
        self.look(jobs, now)
        changed: list[JobUse] = []
        for job, seen in self._seen.items():
            use = JobUse(job=job, service_s=seen.service_s, running=seen.running)
            if use != seen.told:
                seen.told = use
                changed.append(use)
        return changed

    def tell_all(self) -> None:
        """The next report names every job."""
        for seen in self._seen.values():
            seen.told = None
