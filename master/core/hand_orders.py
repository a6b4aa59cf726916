"""Orders of jobs set by hand, by users and operators; valid until the jobs are over or a new order replaces them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from master.core.events import OrderAsked
from master.ordering import HandOrder, JobView, Ranking, placed_by_hand

#: The key of an operator's order of all jobs, in place of a user. No user has this name.
OF_ALL = ""


class HandOrders:
    """User → the order of that user's jobs; and the latest operator's order of all jobs."""

    def __init__(self) -> None:
        self._said: dict[str, HandOrder] = {}
        #: Changes to be stored since :meth:`take_changes`; None: the order is removed.
        self._changed: dict[str, HandOrder | None] = {}

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

    def take_changes(self) -> dict[str, HandOrder | None]:
        """Return the changes to be stored since the last call."""
        changed, self._changed = self._changed, {}
        return changed

    def _store(self, owner: str, order: HandOrder) -> None:
        if order.jobs:
            self._said[owner] = self._changed[owner] = order
        elif self._said.pop(owner, None) is not None:
            self._changed[owner] = None
