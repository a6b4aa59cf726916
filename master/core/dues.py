"""The work that an event leaves for later: a round, an admission, an order of the jobs."""

from __future__ import annotations

import math

from master.core.settings import CurrentSettings


class Dues:
    """Flags and times, each set by the method of an event and read by the owner of the work. Times are monotonic."""

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

    def reconfigured(self) -> None:
        """Make a round, an admission and an order due, because new settings may change their results."""
        self.place_and_admit()
        self.order_due = -math.inf

    # ------------------------------------------------------------ nodes

    def node_registered(self, now: float, gather_s: float) -> None:
        """Place nothing for ``gather_s``; the first registration begins the wait for all other nodes."""
        if gather_s:
            self.gathers_until = now + gather_s
        if self.gathers_since is None:
            self.gathers_since = now

    def node_lost(self, now: float) -> None:
        """Begin a new wait for all nodes."""
        self.gathers_since = now

    def heartbeat_came(self, *, other_memory_changed: bool) -> None:
        """Make a round due; an admission, too, if containers outside any job hold more or less memory than before."""
        self.changed = True
        self.room_changed |= other_memory_changed

    # ------------------------------------------------------------ jobs and tasks

    def job_described(self) -> None:
        """Make an admission due."""
        self.room_changed = True

    def place(self) -> None:
        """Make a round due: a job was admitted, a forecast is known, or a task has left its node."""
        self.changed = True

    def place_anew(self) -> None:
        """Make a round due that also looks for commands that may start ahead of others."""
        self.changed, self.ahead_due = True, 0.0

    def place_and_admit(self) -> None:
        """Make a round and an admission due."""
        self.changed = self.room_changed = True

    def put_on_slack(self) -> None:
        """Look for promotions in the next round: opportunistic work is on some node."""
        self.promotable = True

    def order_anew(self) -> None:
        """Make the order of jobs due at once, or ``interval_s`` after the last time."""
        self.order_due, self.order_owed = min(self.order_due, self.ordered_at + self._settings.current.interval_s), True

    def order_with_service(self) -> None:
        """Make the order of jobs due half a heartbeat after the last time: jobs have received service."""
        self.order_due = min(self.order_due, self.ordered_at + self._settings.current.heartbeat_s / 2)

    # ------------------------------------------------------------ the work is done

    def ordered(self, now: float) -> None:
        """Record that the order of jobs is computed now; it is due again after a heartbeat."""
        self.ordered_at, self.order_due, self.order_owed = now, now + self._settings.current.heartbeat_s, False

    def placed(self) -> None:
        """Record that a round places what it can now."""
        self.changed = False

    def admitted(self) -> None:
        """Record that the waiting jobs are looked at now."""
        self.room_changed = False

    def promoted(self, *, some_left: bool) -> None:
        """Record that promotions are looked for now; ``some_left``: opportunistic work is on some node."""
        self.promotable = some_left

    def looked_ahead(self, now: float) -> None:
        """Record that commands that may start ahead of others are looked for now; it is due again after a heartbeat."""
        self.ahead_due = now + self._settings.current.heartbeat_s
