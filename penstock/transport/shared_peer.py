"""A connection that is served in turn with its user's other connections (see :mod:`penstock.transport.user_budget`).

No request is handled while an answer to an earlier one is unread. So a client that only writes costs the memory of one
answer and one read, and then finds its socket full.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from time import monotonic

from penstock.transport.peer import Handler, RpcPeer
from penstock.transport.user_budget import UserBudget
from penstock.wire.connection import Closed, Malformed, RpcConnection
from penstock.wire.errors import RpcError, refused
from penstock.wire.rpc import Message

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
        self.notify("error", error.body)
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
            message = self._wire.typed_message(data)
            if message is None:
                self._receive_until(self._wire.messages(data), budget, budget.until(began))
            else:  # the hot path
                self._receiving = True
                try:
                    self._handle(message)
                finally:
                    self._receiving = False
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
        self._receiving = True
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
            self._receiving = False
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
