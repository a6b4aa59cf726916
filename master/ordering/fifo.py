"""First in, first out: no stage of a later job goes before one of an earlier job, however well it fits."""

from __future__ import annotations

from collections.abc import Sequence

from master.ordering.policy import ClusterView, JobView, Ranking, Reason, Strict
from penstock.model.units import format_duration


class FirstInFirstOut:
    """Ranks strictly by submission; Algorithm 1's score orders the stages within a job."""

    remembers = False

    def rank(self, jobs: Sequence[JobView], cluster: ClusterView) -> Ranking:
        """Rank by submission."""
        order = [job.job for job in sorted(jobs, key=lambda job: job.earliest)]
        age_s = {job.job: cluster.now - job.submitted_at for job in jobs}
        return Strict(order, _why(order), lambda job: _reason(age_s[job]))


def _reason(age_s: float) -> Reason:
    return Reason(f"submitted {format_duration(age_s)} ago, and the earlier job goes first")


def _why(order: list[str]) -> dict[str, str]:
    return {job: f"fifo: {place} of {len(order)} by submission" for place, job in enumerate(order, start=1)}
