"""A connection that is served in turn with the others of its user (see :mod:`penstock.transport.account`).

No request is handled while an answer to an earlier one waits to be read, so that a client that only writes costs what
one answer and one read take. The client then finds its socket full.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from time import monotonic
from typing import Any

from penstock.transport.account import Account
from penstock.transport.peer import Handler, RpcPeer
from penstock.wire.connection import MAX_FRAME_BYTES, NO_TYPES, Closed, Malformed
from penstock.wire.errors import RpcError, refused
from penstock.wire.rpc import Message

#: Answers of one turn that are collected before they are written: so many, and none after one of that size.
_FLUSH_ANSWERS = 32
_FLUSH_BYTES = 32 * 1024
#: Requests of one connection that are carried out at once, of those that take time.
_MAX_AT_ONCE = 64


class SharedPeer(RpcPeer):
    """As its base, once :meth:`share` was called."""

    def __init__(
        self,
        handler: Handler,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        typed: Mapping[str, type[Any]] = NO_TYPES,
        *,
        unparsed: bool = False,
    ) -> None:
        super().__init__(handler, max_frame_bytes, typed, unparsed=unparsed)
        self._account: Account | None = None
        self._coming: Iterator[Message | Malformed | Closed] | None = None  # arrived, and not handled yet
        self._arrived: deque[bytes] = deque()  # after that
        self._in_line = False  # for the account's next turn
        self._unread = False  # the kernel did not take all that was sent
        self._unfinished_bytes = 0  # as the account knows it

    def share(self, account: Account) -> None:
        """From now on this connection is one of the account's."""
        self._account = account
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=0)
        account.join(self)

    def refuse(self, error: RpcError) -> None:
        """Send why the connection is closed, and close it."""
        self.notify("error", error.body)
        self.close()

    # ------------------------------------------------------------ asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        account = self._account
        if account is None or self.closed:
            super().data_received(data)
        elif (
            account.behind
            or self._unread
            or self._arrived
            or self._coming is not None
            or len(self._tasks) >= _MAX_AT_ONCE
        ):
            self._arrived.append(data)
            account.added(len(data))
            self.pause()
            self._go_on(account)
        else:
            began = monotonic()
            message = self._wire.typed_message(data)
            if message is None:
                self._receive_until(self._wire.messages(data), account, account.until(began))
            else:  # the hot path
                self._receiving = True
                try:
                    self._handle(message)
                finally:
                    self._receiving = False
                    self._flush()
            account.left_s -= monotonic() - began
            if account.left_s <= 0:
                account.over()

    def pause_writing(self) -> None:
        """Called by the loop: the kernel does not take what is sent."""
        self._unread = True

    def resume_writing(self) -> None:
        """Called by the loop: it has taken all."""
        self._unread = False
        if self._account is not None:
            self._account.read(self)
            self._go_on(self._account)
            self.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self._drop_arrived()
        if self._account is not None:
            self._account.leave(self, self._unfinished_bytes)
        super().connection_lost(exc)

    # ------------------------------------------------------------ the account's member

    def proceed(self, until: float) -> None:
        """Handle what waits, until this monotonic time."""
        self._in_line = False
        account = self._account
        if account is None or self.closed or self._held_up():
            return
        messages = self._coming
        if messages is None:
            if not self._arrived:
                return
            data = self._arrived.popleft()
            account.taken(len(data))
            messages = self._wire.messages(data)
        self._receive_until(messages, account, until)
        self._go_on(account)
        self.resume()

    def cut_off(self) -> None:
        """Close without waiting for what is not sent yet."""
        self.closed = True
        self._drop_arrived()
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Read nothing more from the socket."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again, unless something waits to be handled first."""
        transport, account = self._transport, self._account
        waits = self._coming is not None or self._arrived or self._held_up()
        if transport is not None and not waits and not transport.is_closing() and not (account and account.paused):
            transport.resume_reading()

    # ------------------------------------------------------------ inside

    def _receive_until(self, messages: Iterator[Message | Malformed | Closed], account: Account, until: float) -> None:
        """Handle messages until the turn is over, or until the other side has to read first; keep the rest."""
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
            self._go_on(account)
        elif self._wire.unfinished_bytes != self._unfinished_bytes:
            self._count_unfinished(account)

    def _count_unfinished(self, account: Account) -> None:
        change = self._wire.unfinished_bytes - self._unfinished_bytes
        self._unfinished_bytes += change
        if not account.unfinished(change):
            what = f"this user's unfinished messages hold more than {account.max_unfinished_bytes} bytes"
            self.refuse(refused(what, field="frame", remedy="send less at a time"))

    def _held_up(self) -> bool:
        """Return whether the other side has to read, or requests have to end, before the next is handled."""
        return self._unread or len(self._tasks) >= _MAX_AT_ONCE

    def _go_on(self, account: Account) -> None:
        """Line up for the next turn if there is something to be handled."""
        waits = self._coming is not None or bool(self._arrived)
        if waits and not self._in_line and not self.closed and not self._held_up():
            self._in_line = True
            account.wait(self)

    def _drop_arrived(self) -> None:
        if self._account is not None:
            self._account.taken(sum(map(len, self._arrived)))
        self._arrived.clear()
        self._coming = None

    def _wrote(self, transport: asyncio.Transport, written_bytes: int) -> None:
        super()._wrote(transport, written_bytes)
        if self._account is not None and transport.get_write_buffer_size():
            self._unread = True
            self._account.unread(self, written_bytes)

    def _served(self, task: asyncio.Task[None]) -> None:
        super()._served(task)
        if self._account is not None and (self._coming is not None or self._arrived):
            self._go_on(self._account)
