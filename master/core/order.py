"""The order of the jobs: the configured ordering, with the plan's guarantees and the orders by hand applied."""

from __future__ import annotations

from master.core.clock import Clock
from master.core.guarantees import Guarantees
from master.core.hand_orders import HandOrders
from master.core.history import History
from master.core.membership import Membership
from master.core.places import Places
from master.core.settings import MasterSettings
from master.core.table import NodeTable
from master.core.views import Totals, cluster_view, job_views, totals
from master.ordering import JobSizes, JobView, Ranking, guarantees_first, ordering_of


class Order:
    """Ranks the jobs, for regular and for opportunistic work. A changed ordering starts without its earlier state."""

    def __init__(
        self,
        settings: MasterSettings,
        members: Membership,
        table: NodeTable,
        history: History,
        sizes: JobSizes,
        hand_orders: HandOrders,
        guarantees: Guarantees,
        places: Places,
        clock: Clock,
    ) -> None:
        self.ordering = ordering_of(settings.ordering_settings(), sizes)
        self._slack_ordering = ordering_of(settings.ordering_settings(), sizes)
        self._settings = settings
        self._members = members
        self._table = table
        self._history = history
        self._sizes = sizes
        self._hand_orders = hand_orders
        self._guarantees = guarantees
        self._places = places
        self._clock = clock

    def reconfigure(self, settings: MasterSettings) -> None:
        """Apply new settings; replace the ordering where they change it."""
        before, self._settings = self._settings, settings
        if before.ordering_settings() != settings.ordering_settings():
            self.ordering = ordering_of(settings.ordering_settings(), self._sizes)
            self._slack_ordering = ordering_of(settings.ordering_settings(), self._sizes)

    def rank(self, now: float) -> Ranking:
        """Rank the jobs: guaranteed jobs first, then described jobs in the configured order, then early jobs.

        Orders by hand are applied within the configured order.
        """
        total, at = totals(self._table), self._clock.unix(now)
        views = self._views(total)
        ranking = self._hand_orders.arrange(self.ordering.rank(views, cluster_view(total, at)), views)
        ranking = guarantees_first(ranking, *self._guarantees.of(at))
        self._places.ranked(ranking)
        return ranking

    def rank_opportunistic(self, now: float) -> Ranking:
        """Rank the jobs for opportunistic work, by the share of it that each job has."""
        total = totals(self._table)
        views = self._views(total, opportunistic=True)
        ranking = self._slack_ordering.rank(views, cluster_view(total, self._clock.unix(now)))
        return self._hand_orders.arrange(ranking, views)

    def _views(self, total: Totals, *, opportunistic: bool = False) -> list[JobView]:
        described = [job for job in self._members.jobs.values() if job.described]
        return job_views(
            described, self._members.nodes, self._settings, self._history, total, opportunistic=opportunistic
        )
