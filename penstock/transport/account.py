"""What the connections of one user share: a turn of the event loop, and room for bytes.

One user's connections are served in turn, for at most :data:`TURN_S` between two polls of the event loop, so that the
other users wait milliseconds whatever one sends. What a user sends and does not read is bounded for all of that user's
connections together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import Protocol

#: How long one user's messages are handled before the event loop looks at the other users' sockets.
TURN_S = 0.002
#: … and one connection's, before the user's next connection has its turn.
_SHARE_S = TURN_S / 4
MIB = 1024 * 1024
#: A user's answers and notifications that wait for being read. Above it, the connections with the most are cut off.
MAX_UNREAD_BYTES = 64 * MIB
#: A user's messages that have begun and not ended. A connection that needs more is refused.
MAX_UNFINISHED_BYTES = 64 * MIB
#: A user's bytes that were read and wait for their turn. Above it, nothing more is read from any connection.
MAX_WAITING_BYTES = 4 * MIB


class Member(Protocol):
    """A connection, as its account knows it."""

    def proceed(self, until: float) -> None:
        """Handle what waits, until this monotonic time, and call :meth:`Account.wait` if more is left."""

    def unread_bytes(self) -> int:
        """Return how many sent bytes the other side has not read."""

    def cut_off(self) -> None:
        """Close without waiting for the other side."""

    def pause(self) -> None:
        """Read nothing more from the socket."""

    def resume(self) -> None:
        """Read again, unless the connection has a reason of its own not to."""


class Account:
    """One user's; see the module's docstring."""

    def __init__(
        self, max_unread_bytes: int = MAX_UNREAD_BYTES, max_unfinished_bytes: int = MAX_UNFINISHED_BYTES
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._max_unread_bytes = max_unread_bytes
        self.max_unfinished_bytes = max_unfinished_bytes
        #: Of this turn; a connection that has handled something takes away what that took.
        self.left_s = TURN_S
        self._queue: deque[Member] = deque()
        self._members: set[Member] = set()
        self._blocked: set[Member] = set()  # those with unread bytes
        self._added_bytes = 0  # to those, since they were last counted
        self._waiting_bytes = 0
        self._unfinished_bytes = 0
        #: Nothing is read from any of the connections.
        self.paused = False
        self.cut_off = 0  # connections
        #: The turn is over: what arrives now waits for the next one.
        self.behind = False

    def join(self, member: Member) -> None:
        """A connection of this user was made."""
        self._members.add(member)
        if self.paused:
            member.pause()

    def leave(self, member: Member, unfinished_bytes: int) -> None:
        """It is gone."""
        self._members.discard(member)
        self._blocked.discard(member)
        self._unfinished_bytes -= unfinished_bytes

    # ------------------------------------------------------------ turns

    def until(self, now: float) -> float:
        """Return when a connection that begins now has to stop."""
        return now + self.left_s

    def over(self) -> None:
        """The turn was used up."""
        if not self.behind:
            self._schedule()

    def wait(self, member: Member) -> None:
        """The connection has something to handle in the next turn."""
        self._queue.append(member)
        if not self.behind:
            self._schedule()

    def added(self, waiting_bytes: int) -> None:
        """So many bytes were read from a connection, and wait."""
        self._waiting_bytes += waiting_bytes
        if self._waiting_bytes > MAX_WAITING_BYTES and not self.paused:
            self.paused = True
            for each in self._members:
                each.pause()

    def taken(self, waiting_bytes: int) -> None:
        """So many of the bytes that waited are being handled, or were dropped."""
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
        """Return whether the user may have so many more bytes of unfinished messages, and count them."""
        self._unfinished_bytes += change_bytes
        return change_bytes <= 0 or self._unfinished_bytes <= self.max_unfinished_bytes

    def unread(self, member: Member, added_bytes: int) -> None:
        """The kernel did not take all that was sent to this connection."""
        self._blocked.add(member)
        self._added_bytes += added_bytes
        if self._added_bytes * 8 < self._max_unread_bytes:
            return  # counting costs a look at each connection
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
        """The other side has read all."""
        self._blocked.discard(member)
