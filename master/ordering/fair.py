"""Weighted fair sharing of containers, as YARN's Fair scheduler: the baseline of LAS_MQ §5."""

from __future__ import annotations

from collections.abc import Sequence

from master.ordering.policy import Ranking
from master.ordering.shares import Shared, received_since
from master.ordering.turns import Turns
from master.ordering.view import ClusterView, JobView

#: Container-seconds that a job may catch up on after it wanted less than its share, for a weight of 1.
LAG = 60.0


class Fair:
    """Max-min fair: the job with the fewest containers for its weight goes first."""

    remembers = True

    def __init__(self) -> None:
        self._turns: Turns[str] = Turns(LAG)
        self._seen: dict[str, float] = {}

    def rank(self, jobs: Sequence[JobView], cluster: ClusterView) -> Ranking:
        """What a job holds counts for placement, what it has received since it came for the queues of the agents."""
        weights = {job.job: job.weight for job in jobs}
        self._turns.update(received_since(jobs, self._seen), weights)
        self._seen = {job.job: job.service for job in jobs}
        due = self._turns.due
        order = sorted(jobs, key=lambda job: (due[job.job], *job.earliest))
        total = sum(weights.values())
        return Shared(
            "fair: containers by weight",
            {job.job: job.containers / job.weight for job in jobs},
            {job.job: 1.0 / job.weight for job in jobs},
            [job.job for job in order],
            {job.job: cluster.containers * job.weight / total - job.containers for job in jobs},
        )
