"""Dominant resource fairness over cores, disk slots, network slots and memory; weighted, with a tree of tenants.

A job's dominant share is the largest fraction that it holds of any resource of the cluster. The tenants of one level
are served by dominant share ÷ weight, the smallest first; within a tenant, its sub-tenants, and last its jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from master.ordering.policy import ClusterView, JobView, Key, Ordered, Ranking, Reason
from master.ordering.shares import Holdings
from penstock.model.resource_vector import SlotVector


class DominantResourceFairness:
    """``weights`` are of tenants by their path; the default is 1."""

    remembers = False

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._weights = dict(weights or {})

    def rank(self, jobs: Sequence[JobView], cluster: ClusterView) -> Ranking:
        """Rank by the present holdings of jobs and tenants."""
        return _Dominant(jobs, cluster.capacity, self._weights)


class _Dominant(Ordered):
    def __init__(self, jobs: Sequence[JobView], capacity: SlotVector, weights: Mapping[str, float]) -> None:
        self._paths = {job.job: (*levels(job.tenant), f"\0{job.job}") for job in jobs}
        of_levels = {level: weights.get(level, 1.0) for path in self._paths.values() for level in path}
        self._holdings = Holdings(capacity, of_levels | {f"\0{job.job}": job.weight for job in jobs})
        for job in jobs:
            self.charge(job.job, job.holds)
        shares = self._holdings.shares
        ordered = sorted(jobs, key=lambda job: ([shares[level] for level in self._paths[job.job]], job.earliest))
        super().__init__([job.job for job in ordered], self._explained)
        self._place = {job.job: place for place, job in enumerate(ordered)}

    def key(self, job: str, score: float) -> Key:
        """Share ÷ weight of the topmost tenant, of the next, …, of the job; the place in the order; the score."""
        shares = self._holdings.shares
        return (*(-shares[level] for level in self._paths[job]), -float(self._place[job]), score)

    def charge(self, job: str, taken: SlotVector) -> bool:
        """Add to the holdings of the job and its tenants, which also moves other jobs of the same tenants."""
        self._holdings.add(self._paths[job], taken)
        return len(self._paths[job]) > 1

    def group(self, job: str) -> tuple[str, int]:
        """Return the job's tenant, and the number of its levels."""
        *above, _ = self._paths[job]
        return above[-1] if above else "", len(above)

    def why(self, job: str) -> str:
        """Return the dominant share of each level."""
        said = [f"{name or 'job'} {part:.3g} of {resource}" for name, part, resource in self._dominant(job)]
        return f"drf: {', '.join(said)}, {self._place[job] + 1} of {len(self._place)}"

    def _explained(self, job: str) -> Reason:
        """Return the dominant resource of the job and of each tenant above it."""
        said = [
            f"{name or 'it'} holds {100 * part:.3g} % of the {resource}" for name, part, resource in self._dominant(job)
        ]
        return Reason(f"{', '.join(said)}, and the smallest share goes first")

    def _dominant(self, job: str) -> list[tuple[str, float, str]]:
        """Return for each level the tenant ("" for the job), its dominant share, and the resource."""
        return [
            ("" if level.startswith("\0") else level, *self._holdings.dominant(level)) for level in self._paths[job]
        ]


def levels(tenant: str) -> list[str]:
    """Return a tenant's path, the topmost tenant first: ``research``, ``research/eve``."""
    parts = tenant.split("/") if tenant else []
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
