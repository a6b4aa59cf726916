"""Strictly by submission: no stage of a later job before one of an earlier job, however well it would fit."""

from __future__ import annotations

from collections.abc import Sequence

from master.ordering.policy import Ranking, Strict
from master.ordering.view import ClusterView, JobView


class FirstInFirstOut:
    """Algorithm 1's score orders the stages within a job."""

    remembers = False

    def rank(self, jobs: Sequence[JobView], cluster: ClusterView) -> Ranking:
        """By submission."""
        order = [job.job for job in sorted(jobs, key=lambda job: job.earliest)]
        return Strict(order, _why(order))


def _why(order: list[str]) -> dict[str, str]:
    return {job: f"fifo: {place} of {len(order)} by submission" for place, job in enumerate(order, start=1)}
