"""The work that an event leaves for later: a round, an admission, an order of the jobs."""

from __future__ import annotations

import math

from master.core.settings import MasterSettings


class Dues:
    """Flags and times; the owner of a change sets them, the owner of the work reads them. Times are monotonic."""

    def __init__(self, settings: MasterSettings) -> None:
        self.changed = False  # something changed since the last round that may let a task be placed
        self.room_changed = False  # the reservable memory or the set of waiting jobs changed
        self.promotable = False  # opportunistic work may be on some node
        self.ahead_due = 0.0  # when to look next for commands that may start ahead of others
        self.order_due = math.inf  # when to compute the order of jobs for the agents
        self.order_owed = False  # jobs have come or gone: compute the order before the next heartbeat
        self.gathers_since: float | None = None  # the first registration, or the latest loss of a node
        self.gathers_until = -math.inf  # nothing is placed earlier
        self.ordered_at = -math.inf  # when the order of jobs was last computed for the agents
        self.reconfigure(settings)

    def reconfigure(self, settings: MasterSettings) -> None:
        """Apply new intervals."""
        self._interval_s, self._heartbeat_s = settings.interval_s, settings.heartbeat_s

    def order_anew(self) -> None:
        """Make the order of jobs due at once, or ``interval_s`` after the last time."""
        self.order_due, self.order_owed = min(self.order_due, self.ordered_at + self._interval_s), True

    def order_with_service(self) -> None:
        """Make the order of jobs due half a heartbeat after the last time: jobs have received service."""
        self.order_due = min(self.order_due, self.ordered_at + self._heartbeat_s / 2)

    def ordered(self, now: float) -> None:
        """Record that the order of jobs is computed now; it is due again after a heartbeat."""
        self.ordered_at, self.order_due, self.order_owed = now, now + self._heartbeat_s, False

    def place_anew(self) -> None:
        """Make a round due that also looks for commands that may start ahead of others."""
        self.changed, self.ahead_due = True, 0.0

    def place_and_admit(self) -> None:
        """Make a round and an admission due."""
        self.changed = self.room_changed = True
