"""PURE. The plan follower (Rayon §5.2): what the round is told of the plan, which is what is promised now, or soon."""

from __future__ import annotations

from collections.abc import Mapping

from master.core.plan import Promised
from master.reservations.desk import Desk, Promise


class Follower:
    """The cluster's plan: what the desk promises now, or will within ``lead_s`` seconds.

    So long before its time room is made for what is promised: stopping what is in the way takes a while, and so does
    the start of what comes (the adapter's correction, Rayon §5.2).
    """

    def __init__(self, desk: Desk, lead_s: float) -> None:
        self._desk = desk
        self.lead_s = lead_s

    def promised(self, at: float) -> Mapping[str, Promised]:
        """See :class:`master.core.plan.Plan`."""
        now, soon = self._desk.promised(at), self._desk.promised(at + self.lead_s)
        return {one: _more(now.get(one), soon.get(one)) for one in {**now, **soon}}


def _more(now: Promise | None, soon: Promise | None) -> Promised:
    both = [promise for promise in (now, soon) if promise is not None]
    cores, memory = (max(promise.amounts[index] for promise in both) for index in (0, 3))
    return Promised(cores, memory, max(promise.bundles for promise in both))
