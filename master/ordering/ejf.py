"""Earliest Job First (Ursa §4.2.2): W·T is added to the placement score of each stage."""

from __future__ import annotations

from collections.abc import Sequence

from master.ordering.policy import ClusterView, JobView, Ranking, Reason, scored
from penstock.model.units import format_duration


class EarliestJobFirst:
    """W in 1/s: with W = 1 a job that is four seconds older beats any fit, as F is at most 4."""

    remembers = False

    def __init__(self, weight_per_s: float = 1.0) -> None:
        self._weight_per_s = weight_per_s

    def rank(self, jobs: Sequence[JobView], cluster: ClusterView) -> Ranking:
        """Rank by T, the time since the job was submitted."""
        added = {job.job: self._weight_per_s * (cluster.now - job.submitted_at) for job in jobs}
        age_s = {job.job: cluster.now - job.submitted_at for job in jobs}
        why = {job: f"ejf: W·T {value:.3g}" for job, value in added.items()}
        return scored(jobs, added, why, lambda job: _reason(age_s[job]))


def _reason(age_s: float) -> Reason:
    return Reason(
        f"submitted {format_duration(age_s)} ago, and the earlier job goes first, but for a stage that fits much better"
    )
