"""Which jobs users and operators have put first by hand, until they are over or something else is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from master.core.events import OrderAsked
from master.ordering import HandOrder, JobView, Ranking, placed_by_hand

#: In place of a user: what an operator said of everybody's jobs. No user has this name.
OF_ALL = ""


class HandOrders:
    """User → what he wants of his jobs; and what the latest operator wants of all."""

    def __init__(self) -> None:
        self._said: dict[str, HandOrder] = {}
        #: What is to be written down since :meth:`take_changes`; None: nothing is wanted any more.
        self._changed: dict[str, HandOrder | None] = {}

    def asked(self, event: OrderAsked) -> None:
        """It is wanted so from now on, in place of what was said before; without jobs nothing is."""
        self._say(OF_ALL if event.of_all else event.by, HandOrder(event.by, event.jobs))

    def over(self, job: str, user: str) -> None:
        """A job of this user is no more."""
        for whose in (user, OF_ALL):
            said = self._said.get(whose)
            if said is not None and job in said.jobs:
                self._say(whose, replace(said, jobs=tuple(each for each in said.jobs if each != job)))

    def arrange(self, ranking: Ranking, jobs: list[JobView]) -> Ranking:
        """The ranking of these jobs, with places by hand."""
        if not self._said:
            return ranking
        own = {user: order for user, order in self._said.items() if user != OF_ALL}
        return placed_by_hand(ranking, {job.job: job.user for job in jobs}, own, self._said.get(OF_ALL))

    def remember(self, said: Mapping[str, HandOrder]) -> None:
        """What the master before this one wrote down."""
        self._said.update(said)

    def take_changes(self) -> dict[str, HandOrder | None]:
        """What is to be written down, each once."""
        changed, self._changed = self._changed, {}
        return changed

    def _say(self, whose: str, order: HandOrder) -> None:
        if order.jobs:
            self._said[whose] = self._changed[whose] = order
        elif self._said.pop(whose, None) is not None:
            self._changed[whose] = None
