"""Strictly by submission: no stage of a later job before one of an earlier job, however well it would fit."""

from __future__ import annotations

from collections.abc import Sequence

from master.ordering.policy import Key, Ranking, Scored
from master.ordering.view import ClusterView, JobView


class FirstInFirstOut:
    """Algorithm 1's score orders the stages within a job."""

    def rank(self, jobs: Sequence[JobView], cluster: ClusterView) -> Ranking:
        """By submission."""
        order = [job.job for job in sorted(jobs, key=lambda job: job.earliest)]
        return _Strict({job: -float(place) for place, job in enumerate(order)}, order, _why(order))


class _Strict(Scored):
    def key(self, job: str, score: float) -> Key:
        """The place first."""
        return (self._added[job], score)


def _why(order: list[str]) -> dict[str, str]:
    return {job: f"fifo: {place} of {len(order)} by submission" for place, job in enumerate(order, start=1)}
