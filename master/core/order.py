"""The order of the jobs: the configured ordering, with the plan's guarantees and the orders by hand applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from master.changes import Changes
from master.core.dues import Clock
from master.core.events import OrderAsked
from master.core.history import History
from master.core.membership import Membership
from master.core.plan import Guarantees
from master.core.settings import CurrentSettings
from master.core.table import NodeTable
from master.core.views import job_views, totals
from master.ordering import (
    ClusterView,
    HandOrder,
    JobSizes,
    JobView,
    Ranking,
    Reason,
    guarantees_first,
    ordering_of,
    placed_by_hand,
)

#: The key of an operator's order of all jobs, in place of a user. No user has this name.
OF_ALL = ""


class HandOrders:
    """User → the order of that user's jobs; and the latest operator's order of all jobs."""

    def __init__(self) -> None:
        self._said: dict[str, HandOrder] = {}
        self.unstored = Changes[str, HandOrder]()

    def asked(self, event: OrderAsked) -> None:
        """Replace the order by a new one; an order without jobs removes it."""
        self._store(OF_ALL if event.of_all else event.by, HandOrder(event.by, event.jobs))

    def over(self, job: str, user: str) -> None:
        """Remove a finished job of this user from the orders."""
        for owner in (user, OF_ALL):
            said = self._said.get(owner)
            if said is not None and job in said.jobs:
                self._store(owner, replace(said, jobs=tuple(each for each in said.jobs if each != job)))

    def arrange(self, ranking: Ranking, jobs: list[JobView]) -> Ranking:
        """Return the ranking of these jobs with the orders by hand applied."""
        if not self._said:
            return ranking
        own = {user: order for user, order in self._said.items() if user != OF_ALL}
        return placed_by_hand(ranking, {job.job: job.user for job in jobs}, own, self._said.get(OF_ALL))

    def remember(self, said: Mapping[str, HandOrder]) -> None:
        """Restore the orders stored by the previous master."""
        self._said.update(said)

    def _store(self, owner: str, order: HandOrder) -> None:
        if order.jobs:
            self._said[owner] = self.unstored[owner] = order
        elif self._said.pop(owner, None) is not None:
            self.unstored[owner] = None


@dataclass(frozen=True, slots=True)
class Place:
    """A job's position in the order of the jobs: ``rank`` 1 is the first of ``of`` jobs."""

    rank: int
    of: int
    reason: Reason


#: The position of a finished job, or of one that came after the latest ranking.
NOWHERE = Place(0, 0, Reason(""))


class Places:
    """The latest ranking, made for any purpose. Reading it affects no decision."""

    def __init__(self) -> None:
        self._ranking: Ranking | None = None
        self._ranks: dict[str, int] | None = None  # computed on demand

    def ranked(self, ranking: Ranking) -> None:
        """Store a new ranking."""
        self._ranking, self._ranks = ranking, None

    def of(self, job: str) -> Place:
        """Return a job's position."""
        if self._ranking is None:
            return NOWHERE
        if self._ranks is None:
            self._ranks = {name: rank for rank, name in enumerate(self._ranking.order(), start=1)}
        rank = self._ranks.get(job)
        return Place(rank, len(self._ranks), self._ranking.reason(job)) if rank is not None else NOWHERE


@dataclass(eq=False, repr=False)
class Order:
    """Ranks the jobs, for regular and for opportunistic work. A changed ordering starts without its earlier state."""

    _settings: CurrentSettings
    _members: Membership
    _table: NodeTable
    _history: History
    _sizes: JobSizes
    _hand_orders: HandOrders
    _guarantees: Guarantees
    _places: Places
    _clock: Clock

    def __post_init__(self) -> None:
        self._start()

    def reconfigured(self) -> None:
        """Replace the ordering where new settings change it."""
        if self._settings.current.ordering_settings() != self._chosen:
            self._start()

    def _start(self) -> None:
        self._chosen = self._settings.current.ordering_settings()
        self.ordering = ordering_of(self._chosen, self._sizes)
        self._slack_ordering = ordering_of(self._chosen, self._sizes)

    def rank(self, now: float) -> Ranking:
        """Rank the jobs: guaranteed jobs first, then described jobs in the configured order, then early jobs.

        Orders by hand are applied within the configured order.
        """
        views, cluster = self._views(now)
        ranking = self._hand_orders.arrange(self.ordering.rank(views, cluster), views)
        ranking = guarantees_first(ranking, *self._guarantees.of(cluster.now))
        self._places.ranked(ranking)
        return ranking

    def rank_opportunistic(self, now: float) -> Ranking:
        """Rank the jobs for opportunistic work, by the share of it that each job has."""
        views, cluster = self._views(now, opportunistic=True)
        return self._hand_orders.arrange(self._slack_ordering.rank(views, cluster), views)

    def _views(self, now: float, *, opportunistic: bool = False) -> tuple[list[JobView], ClusterView]:
        total = totals(self._table)
        described = [job for job in self._members.jobs.values() if job.described]
        views = job_views(
            described, self._members.nodes, self._settings.current, self._history, total, opportunistic=opportunistic
        )
        return views, ClusterView(self._clock.unix(now), total.capacity, max(1.0, total.capacity[0]))
