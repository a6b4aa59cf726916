"""A connection that is served in turn with its user's other connections, and the limits that these share.

One user's connections are served in turn, for at most :data:`TURN_S` between two polls of the event loop. So other
users wait only milliseconds, however much one user sends. Unhandled messages and unread answers are bounded for all of
a user's connections together. No request is handled while an answer to an earlier one is unread. So a client that only
writes costs the memory of one answer and one read, and then finds its socket full.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from time import monotonic

from penstock.transport.peer import Handler, RpcPeer
from penstock.wire.connection import Closed, Malformed, RpcConnection
from penstock.wire.errors import RpcError, refused
from penstock.wire.rpc import Message

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
#: Answers of one turn are collected up to this number, or until one exceeds this size, before they are written.
_FLUSH_ANSWERS = 32
_FLUSH_BYTES = 32 * 1024
#: The largest number of asynchronous requests of one connection at once.
_MAX_AT_ONCE = 64


class SharedPeer(RpcPeer):
    """An RpcPeer that shares its budget's turns and limits once :meth:`share` was called."""

    def __init__(self, handler: Handler, wire: RpcConnection | None = None) -> None:
        super().__init__(handler, wire)
        self._budget: UserBudget | None = None
        self._coming: Iterator[Message | Malformed | Closed] | None = None  # arrived messages, not handled yet
        self._arrived: deque[bytes] = deque()  # bytes that arrived after those
        self._in_line = False  # queued for the budget's next turn
        self._unread = False  # the kernel did not take all sent bytes
        self._unfinished_bytes = 0  # the number that the budget has counted

    def share(self, budget: UserBudget) -> None:
        """Make this connection a member of the budget."""
        self._budget = budget
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=0)
        budget.join(self)

    def refuse(self, error: RpcError) -> None:
        """Send the reason of the refusal, and close the connection."""
        self.notify(error.body.METHOD, error.body)
        self.close()

    # ------------------------------------------------------------ asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        """Handle received bytes now, or keep them for a later turn; called by the loop, like the next methods."""
        budget = self._budget
        if budget is None or self.closed:
            super().data_received(data)
        elif (
            budget.behind
            or self._unread
            or self._arrived
            or self._coming is not None
            or len(self._tasks) >= _MAX_AT_ONCE
        ):
            self._arrived.append(data)
            budget.added(len(data))
            self.pause()
            self._go_on(budget)
        else:
            began = monotonic()
            message = self._wire.whole_message(data)
            if message is None:
                self._receive_until(self._wire.split(data), budget, began + budget.left_s)
            else:  # the hot path
                self._gathering = True
                try:
                    self._handle(message)
                finally:
                    self._gathering = False
                    self._flush()
            budget.left_s -= monotonic() - began
            if budget.left_s <= 0:
                budget.over()

    def pause_writing(self) -> None:
        """Note that the kernel takes no more bytes."""
        self._unread = True

    def resume_writing(self) -> None:
        """Go on, because the kernel has taken all bytes."""
        self._unread = False
        if self._budget is not None:
            self._budget.read(self)
            self._go_on(self._budget)
            self.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop unhandled bytes and leave the budget."""
        self._drop_arrived()
        if self._budget is not None:
            self._budget.leave(self, self._unfinished_bytes)
        super().connection_lost(exc)

    # ------------------------------------------------------------ the budget's member

    def proceed(self, until: float) -> None:
        """Handle waiting messages until this monotonic time."""
        self._in_line = False
        budget = self._budget
        if budget is None or self.closed or self._held_up():
            return
        messages = self._coming
        if messages is None:
            if not self._arrived:
                return
            data = self._arrived.popleft()
            budget.taken(len(data))
            messages = self._wire.messages(data)
        self._receive_until(messages, budget, until)
        self._go_on(budget)
        self.resume()

    def cut_off(self) -> None:
        """Close without sending the remaining bytes."""
        self.closed = True
        self._drop_arrived()
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Read nothing more from the socket."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again, unless earlier messages wait to be handled."""
        transport, budget = self._transport, self._budget
        waits = self._coming is not None or self._arrived or self._held_up()
        if transport is not None and not waits and not transport.is_closing() and not (budget and budget.paused):
            transport.resume_reading()

    # ------------------------------------------------------------ inside

    def _receive_until(
        self, messages: Iterator[Message | Malformed | Closed], budget: UserBudget, until: float
    ) -> None:
        """Handle messages until the turn is over or the other side has to read first; keep the rest."""
        self._gathering = True
        self._coming = None
        try:
            for message in messages:
                if self.closed:
                    return
                self._handle(message)
                if (out := self._out) and (len(out) > _FLUSH_ANSWERS or len(out[-1]) > _FLUSH_BYTES):
                    self._flush()
                if monotonic() > until or self._held_up():
                    self._coming = messages
                    break
        finally:
            self._gathering = False
            self._flush()
        if self._coming is not None:
            self.pause()
            self._go_on(budget)
        elif self._wire.unfinished_bytes != self._unfinished_bytes:
            self._count_unfinished(budget)

    def _count_unfinished(self, budget: UserBudget) -> None:
        change = self._wire.unfinished_bytes - self._unfinished_bytes
        self._unfinished_bytes += change
        if not budget.unfinished(change):
            what = f"this user's unfinished messages hold more than {budget.max_unfinished_bytes} bytes"
            self.refuse(refused(what, field="frame", remedy="send less at a time"))

    def _held_up(self) -> bool:
        """Return whether the other side must read, or requests must end, before the next message is handled."""
        return self._unread or len(self._tasks) >= _MAX_AT_ONCE

    def _go_on(self, budget: UserBudget) -> None:
        """Queue for the next turn if messages wait."""
        waits = self._coming is not None or bool(self._arrived)
        if waits and not self._in_line and not self.closed and not self._held_up():
            self._in_line = True
            budget.wait(self)

    def _drop_arrived(self) -> None:
        if self._budget is not None:
            self._budget.taken(sum(map(len, self._arrived)))
        self._arrived.clear()
        self._coming = None

    def _wrote(self, transport: asyncio.Transport, written_bytes: int) -> None:
        super()._wrote(transport, written_bytes)
        if self._budget is not None and transport.get_write_buffer_size():
            self._unread = True
            self._budget.unread(self, written_bytes)

    def _served(self, task: asyncio.Task[None]) -> None:
        super()._served(task)
        if self._budget is not None and (self._coming is not None or self._arrived):
            self._go_on(self._budget)


class UserBudget:
    """The shared limits of one user's connections: time in the event loop, and memory for messages."""

    def __init__(
        self, max_unread_bytes: int = MAX_UNREAD_BYTES, max_unfinished_bytes: int = MAX_UNFINISHED_BYTES
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._max_unread_bytes = max_unread_bytes
        self.max_unfinished_bytes = max_unfinished_bytes
        #: The time left in this turn; a connection subtracts the time that it used.
        self.left_s = TURN_S
        self._queue: deque[SharedPeer] = deque()
        self._members: set[SharedPeer] = set()
        self._blocked: set[SharedPeer] = set()  # members with unread bytes
        self._added_bytes = 0  # unread bytes added since the last count
        self._waiting_bytes = 0
        self._unfinished_bytes = 0
        #: None of the connections is read.
        self.paused = False
        self.cut_off = 0  # the number of connections that were cut off
        #: The turn is over: arriving messages wait for the next turn.
        self.behind = False

    def join(self, member: SharedPeer) -> None:
        """Add a new connection of this user."""
        self._members.add(member)
        if self.paused:
            member.pause()

    def leave(self, member: SharedPeer, unfinished_bytes: int) -> None:
        """Remove a lost connection."""
        self._members.discard(member)
        self._blocked.discard(member)
        self._unfinished_bytes -= unfinished_bytes

    # ------------------------------------------------------------ turns

    def over(self) -> None:
        """End the turn, which was used up."""
        if not self.behind:
            self._schedule()

    def wait(self, member: SharedPeer) -> None:
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
        if self.paused and not self.behind:  # a turn ends the pause, and no message may be left that has one
            self._schedule()

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

    def unread(self, member: SharedPeer, added_bytes: int) -> None:
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

    def read(self, member: SharedPeer) -> None:
        """Note that the other side has read everything."""
        self._blocked.discard(member)
