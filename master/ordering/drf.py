"""Dominant resource fairness over cores, disk slots, network slots and memory; weighted, with a tree of tenants.

A job's dominant share is the largest fraction that it holds of any resource of the cluster. The tenants of one level
are served by dominant share ÷ weight, the smallest first; within a tenant, its sub-tenants, and last its jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from master.ordering.policy import Amounts, ClusterView, JobView, Key, Ordered, Ranking, Reason


class DominantResourceFairness:
    """``weights`` are of tenants by their path; the default is 1."""

    remembers = False

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._weights = dict(weights or {})

    def rank(self, jobs: Sequence[JobView], cluster: ClusterView) -> Ranking:
        """Rank by the present holdings of jobs and tenants."""
        return _Dominant(jobs, cluster.capacity, self._weights)


class _Dominant(Ordered):
    def __init__(self, jobs: Sequence[JobView], capacity: Amounts, weights: Mapping[str, float]) -> None:
        self._capacity = capacity
        self._paths = {job.job: (*_levels(job.tenant), f"\0{job.job}") for job in jobs}
        self._weights = {level: weights.get(level, 1.0) for path in self._paths.values() for level in path}
        self._weights |= {f"\0{job.job}": job.weight for job in jobs}
        self._held: dict[str, list[float]] = {level: [0.0] * len(capacity) for level in self._weights}
        self._shares = dict.fromkeys(self._weights, 0.0)
        for job in jobs:
            self.charge(job.job, job.holds)
        ordered = sorted(jobs, key=lambda job: ([self._shares[level] for level in self._paths[job.job]], job.earliest))
        super().__init__([job.job for job in ordered], self._explained)
        self._place = {job.job: place for place, job in enumerate(ordered)}

    def key(self, job: str, score: float) -> Key:
        """Share ÷ weight of the topmost tenant, of the next, …, of the job; the place in the order; the score."""
        return (*(-self._shares[level] for level in self._paths[job]), -float(self._place[job]), score)

    def charge(self, job: str, taken: Amounts) -> bool:
        """Add to the holdings of the job and its tenants, which also moves other jobs of the same tenants."""
        for level in self._paths[job]:
            held = self._held[level]
            for resource, amount in enumerate(taken):
                held[resource] += amount
            self._shares[level] = max(self._parts(level)) / self._weights[level]
        return len(self._paths[job]) > 1

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
        found = []
        for level in self._paths[job]:
            parts = self._parts(level)
            name = "" if level.startswith("\0") else level
            found.append((name, max(parts), _RESOURCES[parts.index(max(parts))]))
        return found

    def _parts(self, level: str) -> list[float]:
        return [held / have if have else 0.0 for held, have in zip(self._held[level], self._capacity, strict=True)]


_RESOURCES = ("cores", "disk slots", "network slots", "memory")


def _levels(tenant: str) -> list[str]:
    parts = tenant.split("/") if tenant else []
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
