"""Weighted fair sharing of containers, like YARN's Fair scheduler: the baseline of LAS_MQ §5."""

from __future__ import annotations

from collections.abc import Sequence

from master.ordering.policy import ClusterView, JobView, Ranking, Reason
from master.ordering.shares import Shared, Turns, received_since
from penstock.model.units import counted, format_duration

#: Container-seconds that a job may catch up on after wanting less than its share, for a weight of 1.
LAG = 60.0


class Fair:
    """Max-min fair: the job with the fewest containers for its weight goes first."""

    remembers = True

    def __init__(self) -> None:
        self._turns: Turns[str] = Turns(LAG)
        self._seen: dict[str, float] = {}

    def rank(self, jobs: Sequence[JobView], cluster: ClusterView) -> Ranking:
        """Rank by held containers for placement, and by service received since arrival for the agents' queues."""
        weights = {job.job: job.weight for job in jobs}
        self._turns.update(received_since(jobs, self._seen), weights)
        self._seen = {job.job: job.service for job in jobs}
        due, received = self._turns.due, self._turns.received
        views = {job.job: job for job in jobs}
        order = sorted(jobs, key=lambda job: (due[job.job], *job.earliest))
        total = sum(weights.values())
        shares = {job: cluster.containers * weight / total for job, weight in weights.items()}
        return Shared(
            "fair: containers by weight",
            {job.job: job.containers / job.weight for job in jobs},
            {job.job: 1.0 / job.weight for job in jobs},
            [job.job for job in order],
            lambda job: _reason(views[job], received[job], shares[job]),
            {job.job: shares[job.job] - job.containers for job in jobs},
        )


def _reason(job: JobView, received: float, share: float) -> Reason:
    """Return the reason. ``received``: the job's service ÷ weight beyond that of the job with the least."""
    weighed = f", for its weight of {job.weight:g}" if job.weight != 1 else ""
    more = f"{format_duration(received)} more service than the job that received the least{weighed}"
    received_least = f"no job has received less{weighed}"
    holds = f"it holds {counted(job.containers, 'container')} and its share is {share:.3g}"
    return Reason(f"{more if received else received_least}; {holds}")
