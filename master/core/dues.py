"""The time of the present event, and the work that it leaves for later: a round, an admission, an order of the jobs."""

from __future__ import annotations

import math

from master.core.settings import CurrentSettings

#: A round waits for this time after a registration, as the messages right behind it change what is to be placed. A
#: round without a task to place, and the order of the jobs, wait as long for the tasks behind a job.
BEHIND_S = 0.02


class Clock:
    """The cluster's clock. Times are monotonic seconds; Unix time is known since the latest round."""

    def __init__(self) -> None:
        self.now = 0.0  # of the latest event
        self.unix_ahead_s = 0.0  # Unix time minus monotonic time

    def unix(self, now: float) -> float:
        """Return Unix time, as used for times of submission; it only affects the order of jobs."""
        return now + self.unix_ahead_s


class Dues:
    """Flags and times, set by the owners whose events make work due, and reset by the owner of the work.

    Times are monotonic.
    """

    def __init__(self, settings: CurrentSettings) -> None:
        self.changed = False  # something changed since the last round that may let a task be placed
        self.room_changed = False  # the reservable memory or the set of waiting jobs changed
        self.promotable = False  # opportunistic work may be on some node
        self.ahead_due = 0.0  # when to look next for commands that may start ahead of others
        self.order_due = math.inf  # when to compute the order of jobs for the agents
        self.order_owed = False  # jobs have come or gone: compute the order before the next heartbeat
        self.gathers_since: float | None = None  # the first registration, or the latest loss of a node
        self.gathers_until = -math.inf  # nothing is placed earlier
        self.ordered_at = -math.inf  # when the order of jobs was last computed for the agents
        self._settings = settings

    def node_registered(self, now: float, gather_s: float) -> None:
        """Place nothing for ``gather_s``; the first registration begins the wait for all other nodes."""
        if gather_s:
            self.gathers_until = now + gather_s
        if self.gathers_since is None:
            self.gathers_since = now

    def place_anew(self) -> None:
        """Make a round due that also looks for commands that may start ahead of others."""
        self.changed, self.ahead_due = True, 0.0

    def place_and_admit(self) -> None:
        """Make a round and an admission due."""
        self.changed = self.room_changed = True

    def order_anew(self) -> None:
        """Make the order of jobs due at once, or ``interval_s`` after the last time."""
        self.order_due, self.order_owed = min(self.order_due, self.ordered_at + self._settings.current.interval_s), True

    def order_with_tasks(self, now: float) -> None:
        """Make the order of jobs due with the next round, or as :meth:`order_anew`, but :data:`BEHIND_S` from now or
        later: a job has come, and one ranking is to serve its place in the order and the placement of its tasks.
        """
        self.order_anew()
        self.order_due = max(self.order_due, now + BEHIND_S)

    def order_with_service(self) -> None:
        """Make the order of jobs due half a heartbeat after the last time: jobs have received service."""
        self.order_due = min(self.order_due, self.ordered_at + self._settings.current.heartbeat_s / 2)

    def ordered(self, now: float) -> None:
        """Record that the order of jobs is computed now; it is due again after a heartbeat."""
        self.ordered_at, self.order_due, self.order_owed = now, now + self._settings.current.heartbeat_s, False

    def looked_ahead(self, now: float) -> None:
        """Record that commands that may start ahead of others are looked for now; it is due again after a heartbeat."""
        self.ahead_due = now + self._settings.current.heartbeat_s
