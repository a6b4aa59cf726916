"""Least attained service: the job that has received the fewest container-seconds goes first (LAS_MQ §2.1, §5)."""

from __future__ import annotations

from collections.abc import Sequence

from master.ordering.policy import ClusterView, JobView, Ranking, Reason
from master.ordering.shares import Shared
from penstock.model.units import format_duration


class LeastAttainedService:
    """``quantum_s``: the service that a container given now will have received before the next choice."""

    remembers = False

    def __init__(self, quantum_s: float = 1.0) -> None:
        self._quantum_s = quantum_s

    def rank(self, jobs: Sequence[JobView], cluster: ClusterView) -> Ranking:
        """Rank by received service, without weights."""
        levels = {job.job: job.service + self._quantum_s * job.containers for job in jobs}
        order = sorted(jobs, key=lambda job: (job.service, *job.earliest))
        growth = dict.fromkeys(levels, self._quantum_s)
        service = {job.job: job.service for job in jobs}
        ranked = [job.job for job in order]
        return Shared("las: container-seconds", levels, growth, ranked, lambda job: _reason(service[job]))


def _reason(service: float) -> Reason:
    return Reason(f"{format_duration(service)} of service so far, and the job with the least goes first")
