"""Tenants above an order: each tenant has its share, and the order decides among its jobs.

Where an operator has configured tenants or weights, the tenants of one level are served by their amount ÷ weight, the
smallest first: in placement by their dominant share of the resources held now, as in :mod:`master.ordering.drf`, and in
admission and in the agents' queues, which know an order and no amounts, by turns on the service received
(:class:`~master.ordering.shares.Turns`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from master.ordering.drf import levels
from master.ordering.policy import ClusterView, JobView, Key, Ordering, Ranking, Reason
from master.ordering.shares import Holdings, Turns, received_since
from penstock.model.resource_vector import SlotVector
from penstock.model.units import counted, format_duration, ordinal

#: Container-seconds that a tenant may catch up on after wanting less than its share, for a weight of 1.
LAG = 60.0
#: Ended jobs whose service by the last ranking is kept until the rest of it is reported.
_MOST_ENDED = 1000
#: The parent of the topmost tenants. No tenant has this name.
_TOP = "\0"


class TenantTree:
    """The tenants that have jobs, as a tree. ``paths`` are their levels, the topmost first; ``weights`` are by level.

    A tenant with sub-tenants and jobs of its own is also a sub-tenant of itself: ``research/`` in ``research``.
    """

    def __init__(self, tenants: Iterable[str], weights: Mapping[str, float]) -> None:
        paths = {tenant: tuple(levels(tenant)) or (tenant,) for tenant in tenants}
        parents = {level for path in paths.values() for level in path[:-1]}
        self.paths = {tenant: (*path, f"{tenant}/") if tenant in parents else path for tenant, path in paths.items()}
        self.weights = {level: weights.get(level, 1.0) for path in self.paths.values() for level in path}
        self.children: dict[str, dict[str, None]] = {}
        for path in self.paths.values():
            for parent, level in pairwise((_TOP, *path)):
                self.children.setdefault(parent, {})[level] = None

    def contended(self, tenant: str) -> list[str]:
        """Return the tenant's levels, without that of an only sub-tenant: it has all that its parent has."""
        top, *_ = path = self.paths[tenant]
        return [top, *(level for parent, level in pairwise(path) if len(self.children[parent]) > 1)]

    def flat_weight(self, tenant: str) -> float:
        """Return the tenant's part of the weight of its topmost tenant: its weight where tenants have no sub-tenants.

        The flat weights of all tenants are in the proportion of their shares of the cluster.
        """
        top, *_ = path = self.paths[tenant]
        weight = self.weights[top]
        for parent, level in pairwise(path):
            weight *= self.weights[level] / self._sum(parent)
        return weight

    def share(self, tenant: str) -> float:
        """Return the part of the cluster that the tenant has while all tenants here want more."""
        return self.flat_weight(tenant) / self._sum(_TOP)

    def _sum(self, parent: str) -> float:
        return sum(self.weights[level] for level in self.children[parent])


class Tenants:
    """Serves tenants by their shares, and the jobs of each tenant in the order of another ordering."""

    remembers = True

    def __init__(self, make: Callable[[], Ordering], weights: Mapping[str, float]) -> None:
        """``make`` returns the ordering inside tenants, a new one each time; ``weights`` are of tenants by path."""
        self._make = make
        self._weights = dict(weights)
        self._common = make()
        self.inside_remembers = self._common.remembers
        self._own: dict[str, Ordering] = {}  # by tenant; used if the ordering inside keeps state
        self._turns: dict[str, Turns[str]] = {}  # of the sub-tenants of each tenant
        self._seen: dict[str, float] = {}  # job → its service
        self._more: dict[str, float] = {}  # tenant → service of its ended jobs that no ranking has seen

    def ended(self, job: str, tenant: str, service: float) -> None:
        """Count an ended job's service since the last ranking; short jobs may have received all of it since."""
        self._more[tenant] = self._more.get(tenant, 0.0) + max(0.0, service - self._seen.pop(job, 0.0))

    def rank(self, jobs: Sequence[JobView], cluster: ClusterView) -> Ranking:
        """Rank the tenants of each level, and the jobs of each tenant."""
        tree = TenantTree(dict.fromkeys(job.tenant for job in jobs), self._weights)
        self._count(jobs, tree)
        return _ByTenant(jobs, cluster, tree, self._inside(jobs, cluster, tree), self._turns)

    def _count(self, jobs: Sequence[JobView], tree: TenantTree) -> None:
        """Count the service received since the last ranking for all levels above a job."""
        received = received_since(jobs, self._seen)
        ended = [(job, service) for job, service in self._seen.items() if job not in received]
        self._seen = dict(ended[-_MOST_ENDED:]) | {job.job: job.service for job in jobs}
        served = dict.fromkeys(tree.weights, 0.0)
        for tenant, service in [*((job.tenant, received[job.job]) for job in jobs), *self._more.items()]:
            for level in tree.paths.get(tenant, ()):
                served[level] += service
        self._more = {}
        self._turns = {parent: self._turns.get(parent, Turns(LAG)) for parent in tree.children}
        for parent, children in tree.children.items():
            self._turns[parent].update({level: served[level] for level in children}, tree.weights)

    def _inside(self, jobs: Sequence[JobView], cluster: ClusterView, tree: TenantTree) -> dict[str, Ranking]:
        """Return the ranking of each tenant's jobs: an ordering with state, such as of shares, has one for each."""
        if not self.inside_remembers:
            return dict.fromkeys(tree.paths, self._common.rank(jobs, cluster))
        self._own = {tenant: self._own.get(tenant) or self._make() for tenant in tree.paths}
        of: dict[str, list[JobView]] = {tenant: [] for tenant in tree.paths}
        for job in jobs:
            of[job.tenant].append(job)
        return {
            tenant: ordering.rank(
                of[tenant], replace(cluster, containers=max(1.0, cluster.containers * tree.share(tenant)))
            )
            for tenant, ordering in self._own.items()
        }


class _ByTenant:
    """A ranking by the shares of tenants; ``inside`` ranks the jobs of each."""

    def __init__(
        self,
        jobs: Sequence[JobView],
        cluster: ClusterView,
        tree: TenantTree,
        inside: Mapping[str, Ranking],
        turns: Mapping[str, Turns[str]],
    ) -> None:
        self._tenants = {job.job: job.tenant for job in jobs}
        self._tree = tree
        self._inside = inside
        self._holdings = Holdings(cluster.capacity, tree.weights)
        self._received = {level: value for each in turns.values() for level, value in each.received.items()}
        self._below = Counter(tree.paths[job.tenant][0] for job in jobs)  # jobs of each topmost tenant
        first: dict[str, tuple[float, int]] = {}  # level → its earliest job
        for job in jobs:
            for level in tree.paths[job.tenant]:
                first[level] = min(first.get(level, job.earliest), job.earliest)
            self._holdings.add(tree.paths[job.tenant], job.holds)
        self._turn = {
            level: turn
            for parent, children in tree.children.items()
            for turn, level in enumerate(sorted(children, key=lambda level: (turns[parent].due[level], first[level])))
        }
        self._order, self._places = self._ordered()
        self.whole_stages = len(inside) == 1 and next(iter(inside.values())).whole_stages

    def _ordered(self) -> tuple[list[str], dict[str, tuple[int, int]]]:
        """Return the order, and each job's place among its tenant's jobs with their number."""
        by_turn = sorted(self._inside, key=lambda tenant: [self._turn[level] for level in self._tree.paths[tenant]])
        of: dict[str, list[str]] = {tenant: [] for tenant in by_turn}
        for ranking in {id(each): each for each in self._inside.values()}.values():
            for job in ranking.order():
                of[self._tenants[job]].append(job)
        places = {job: (place, len(jobs)) for jobs in of.values() for place, job in enumerate(jobs, start=1)}
        return [job for jobs in of.values() for job in jobs], places

    def key(self, job: str, score: float) -> Key:
        """Return share ÷ weight of the topmost tenant and its turn, of the next, …; then the key inside the tenant."""
        path, shares = self._tree.paths[self._tenants[job]], self._holdings.shares
        above = (part for level in path for part in (-shares[level], -float(self._turn[level])))
        return (*above, *self._of(job).key(job, score))

    def charge(self, job: str, taken: SlotVector) -> bool:
        """Add to the holdings of the job's tenants, which moves their other jobs, too."""
        path = self._tree.paths[self._tenants[job]]
        self._holdings.add(path, taken)
        return self._of(job).charge(job, taken) or self._below[path[0]] > 1

    def group(self, job: str) -> tuple[str, int]:
        """Return the job's group inside its tenant, and the share and turn of each level as common, too."""
        tenant, (inside, common) = self._tenants[job], self._of(job).group(job)
        return f"{tenant}\0{inside}", 2 * len(self._tree.paths[tenant]) + common

    def room(self, job: str) -> float:
        """Return the room inside the tenant."""
        return self._of(job).room(job)

    def order(self) -> list[str]:
        """Return the jobs of the tenant that has the turn, in the order inside it, then those of the next one, …"""
        return self._order

    def why(self, job: str) -> str:
        """Return the dominant share of each tenant above the job, and the line of the order inside."""
        path = self._tree.paths[self._tenants[job]]
        held = ((level, *self._holdings.dominant(level)) for level in path)
        said = [f"{level} {part:.3g} of {resource}" for level, part, resource in held]
        return f"tenants: {', '.join(said)}; {self._of(job).why(job)}"

    def reason(self, job: str) -> Reason:
        """Return the reason inside the tenant, with the place there, and the tenants' parts of their shares."""
        tenant, (place, of) = self._tenants[job], self._places[job]
        inner = self._of(job).reason(job)
        which = f"{ordinal(place)} of {tenant}'s {counted(of, 'job')}" if of > 1 else f"the only job of {tenant}"
        shares = "; ".join(self._shares_of(level) for level in self._tree.contended(tenant))
        entitled = f"{tenant}'s share is {100 * self._tree.share(tenant):.3g} %"
        return replace(inner, said=f"{which}: {inner.said}; {entitled}; {shares}")

    def _shares_of(self, level: str) -> str:
        part, resource = self._holdings.dominant(level)
        name = f"{level[:-1]} itself" if level.endswith("/") else level
        more, weight = self._received[level], self._tree.weights[level]
        weighed = f", for its weight of {weight:g}" if weight != 1 else ""
        received = f"{format_duration(more)} more service than the tenant that received the least" if more else ""
        said = f"has received {received}" if received else "no tenant beside it has received less"
        return f"{name} holds {100 * part:.3g} % of the {resource}, and {said}{weighed}"

    def _of(self, job: str) -> Ranking:
        return self._inside[self._tenants[job]]
