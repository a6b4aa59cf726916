"""The shared limits of one user's connections: time in the event loop, and memory for messages.

One user's connections are served in turn, for at most :data:`TURN_S` between two polls of the event loop. So other
users wait only milliseconds, however much one user sends. Unhandled messages and unread answers are bounded for all of
a user's connections together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import Protocol

#: The time for one user's messages before the event loop polls the other users' sockets.
TURN_S = 0.002
#: The time for one connection's messages before the user's next connection has its turn.
_SHARE_S = TURN_S / 4
MIB = 1024 * 1024
#: The limit of a user's unread answers and notifications. Above it, the connections with the most are cut off.
MAX_UNREAD_BYTES = 64 * MIB
#: The limit of a user's incomplete messages. A connection that needs more is refused.
MAX_UNFINISHED_BYTES = 64 * MIB
#: The limit of a user's read bytes that wait for their turn. Above it, none of the user's connections is read.
MAX_WAITING_BYTES = 4 * MIB


class Member(Protocol):
    """A connection, from its budget's view."""

    def proceed(self, until: float) -> None:
        """Handle waiting messages until this monotonic time, and call :meth:`UserBudget.wait` if more are left."""

    def unread_bytes(self) -> int:
        """Return the number of sent bytes that the other side has not read."""

    def cut_off(self) -> None:
        """Close without waiting for the other side."""

    def pause(self) -> None:
        """Read nothing more from the socket."""

    def resume(self) -> None:
        """Read again, unless the connection has a reason of its own not to."""


class UserBudget:
    """The shared limits of one user's connections; see the module's docstring."""

    def __init__(
        self, max_unread_bytes: int = MAX_UNREAD_BYTES, max_unfinished_bytes: int = MAX_UNFINISHED_BYTES
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._max_unread_bytes = max_unread_bytes
        self.max_unfinished_bytes = max_unfinished_bytes
        #: The time left in this turn; a connection subtracts the time that it used.
        self.left_s = TURN_S
        self._queue: deque[Member] = deque()
        self._members: set[Member] = set()
        self._blocked: set[Member] = set()  # members with unread bytes
        self._added_bytes = 0  # unread bytes added since the last count
        self._waiting_bytes = 0
        self._unfinished_bytes = 0
        #: None of the connections is read.
        self.paused = False
        self.cut_off = 0  # the number of connections that were cut off
        #: The turn is over: arriving messages wait for the next turn.
        self.behind = False

    def join(self, member: Member) -> None:
        """Add a new connection of this user."""
        self._members.add(member)
        if self.paused:
            member.pause()

    def leave(self, member: Member, unfinished_bytes: int) -> None:
        """Remove a lost connection."""
        self._members.discard(member)
        self._blocked.discard(member)
        self._unfinished_bytes -= unfinished_bytes

    # ------------------------------------------------------------ turns

    def until(self, now: float) -> float:
        """Return the time when a connection that begins at ``now`` must stop."""
        return now + self.left_s

    def over(self) -> None:
        """End the turn, which was used up."""
        if not self.behind:
            self._schedule()

    def wait(self, member: Member) -> None:
        """Queue a connection with waiting messages for the next turn."""
        self._queue.append(member)
        if not self.behind:
            self._schedule()

    def added(self, waiting_bytes: int) -> None:
        """Count bytes that were read from a connection and wait."""
        self._waiting_bytes += waiting_bytes
        if self._waiting_bytes > MAX_WAITING_BYTES and not self.paused:
            self.paused = True
            for each in self._members:
                each.pause()

    def taken(self, waiting_bytes: int) -> None:
        """Subtract waiting bytes that are being handled or were dropped."""
        self._waiting_bytes -= waiting_bytes

    def _schedule(self) -> None:
        self.behind = True
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        now = monotonic()
        ends = now + TURN_S
        queue = self._queue
        while queue and now < ends:
            queue.popleft().proceed(min(ends, now + _SHARE_S))
            now = monotonic()
        if queue:
            self._loop.call_soon(self._turn)
            return
        self.left_s = TURN_S
        self.behind = False
        if self.paused and self._waiting_bytes <= MAX_WAITING_BYTES // 2:
            self.paused = False
            for each in self._members:
                each.resume()

    # ------------------------------------------------------------ bytes

    def unfinished(self, change_bytes: int) -> bool:
        """Count more bytes of unfinished messages, and return whether the user may have them."""
        self._unfinished_bytes += change_bytes
        return change_bytes <= 0 or self._unfinished_bytes <= self.max_unfinished_bytes

    def unread(self, member: Member, added_bytes: int) -> None:
        """Count bytes sent to a connection that the kernel did not take at once."""
        self._blocked.add(member)
        self._added_bytes += added_bytes
        if self._added_bytes * 8 < self._max_unread_bytes:
            return  # an exact count visits each connection, so it is made rarely
        self._added_bytes = 0
        sizes = {each: each.unread_bytes() for each in self._blocked}
        total = sum(sizes.values())
        for each, size in sorted(sizes.items(), key=lambda one: -one[1]):
            if total <= self._max_unread_bytes:
                return
            total -= size
            self.cut_off += 1
            self._blocked.discard(each)
            each.cut_off()

    def read(self, member: Member) -> None:
        """Note that the other side has read everything."""
        self._blocked.discard(member)
