"""One end of a MessagePack-RPC connection on an asyncio transport; both ends may call and both may serve.

Messages sent while a read is being handled, or by :meth:`RpcPeer.send_together`, leave in one write when that is over.
Other messages leave in one write at the end of the loop's turn. A message that the other side does not wait for costs
both sides no wake-up of its own: it leaves with the next one, or after :data:`DELAY_S`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from penstock.wire.connection import MAX_FRAME_BYTES, NO_TYPES, Closed, Malformed, RpcConnection, read
from penstock.wire.errors import ErrorBody, ErrorCode, RpcError, bad_request
from penstock.wire.rpc import Message, Notification, Request, Response

#: The limit of a TLS handshake, which takes milliseconds; a slower peer is not one of ours.
HANDSHAKE_TIMEOUT_S = 10.0
#: The longest wait for room in a server's queue of connections; a working daemon empties it within milliseconds.
_QUEUE_S = 10.0
_QUEUE_PAUSE_S = 0.01
#: A peer that leaves this much unread is cut off, as the unread bytes take our memory.
MAX_UNSENT_BYTES = 64 * 1024 * 1024
#: A host that has lost its power or its network closes nothing; without this, TCP goes on for 15 minutes (tcp(7)).
_UNREACHABLE_AFTER_MS = 20_000
#: The longest time for which a message waits for another one to leave with.
DELAY_S = 0.2

T = TypeVar("T")


class Delayed(NamedTuple):
    """The result of a request whose answer the other side does not wait for: it leaves with the next message."""

    result: object


class Handler(Protocol):
    """The callbacks of a connection's owner. ``params`` is for ``wire.read_params``."""

    def connected(self, peer: RpcPeer) -> None:
        """Handle that the transport is connected."""

    def request(self, peer: RpcPeer, method: str, params: Any) -> object:
        """Return the result (a struct, mapping or None), :class:`Delayed`, or a coroutine of the result; raise
        RpcError to refuse.
        """

    def notification(self, peer: RpcPeer, method: str, params: Any) -> None:
        """Handle a notification, which has no answer; a raised RpcError is sent back as the notification ``error``."""

    def disconnected(self, peer: RpcPeer, error: Exception | None) -> None:
        """Handle that the transport is lost. Called once, also after :meth:`RpcPeer.close`."""

    def internal_error(self, peer: RpcPeer, method: str, error: Exception) -> None:
        """Log that a handler failed, which is our fault; the caller was sent ``internal``."""


class RpcPeer(asyncio.Protocol):
    """One end of a connection; see the module's docstring."""

    def __init__(self, handler: Handler, wire: RpcConnection | None = None) -> None:
        """``wire`` is the state of the protocol; the default has the usual limit and no typed methods."""
        self._handler = handler
        self._wire = wire or RpcConnection()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._out: list[bytes] = []
        self._delayed: dict[object, bytes] = {}  # key → message that leaves with the next one
        self._delay_end: asyncio.TimerHandle | None = None  # sends them if no other message does
        self._gathering = False  # messages are sent together when this ends
        self._flush_scheduled = False
        self.closed = False
        self._fd = -1  # the descriptor to write to without the transport; -1 with TLS, which needs the transport

    # ------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start; called by the loop, like the next two methods."""
        self._transport = cast(asyncio.Transport, transport)  # not an assertion: uvloop's class is no subclass
        connection = transport.get_extra_info("socket")
        if transport.get_extra_info("sslcontext") is None:
            self._fd = connection.fileno()
        elif connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREACHABLE_AFTER_MS)
        self._handler.connected(self)

    def data_received(self, data: bytes) -> None:
        """Handle received bytes."""
        self._gathering = True
        try:
            for message in self._wire.messages(data):
                if self.closed:
                    return
                self._handle(message)
        finally:
            self._gathering = False
            self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all waiting requests and tell the handler."""
        self.closed = True
        self._transport = None
        self._take_delayed()
        for future in self._waiting.values():
            if not future.done():
                lost = ConnectionResetError("the connection was lost before the answer came")
                lost.__cause__ = exc  # with TLS 1.3 a client learns only now that its certificate was refused
                future.set_exception(lost)
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()
        self._handler.disconnected(self, exc)

    # ------------------------------------------------------------ calling

    def unread_bytes(self) -> int:
        """Return the number of sent bytes that the kernel has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def push(self) -> int:
        """Send now, not at the end of the loop's turn; return the bytes that would be lost if this process died."""
        self._send_delayed()
        return self.unread_bytes()

    def notify(self, method: str, params: object = None) -> None:
        """Send a notification; do nothing if the connection is lost."""
        if not self.closed:
            self._send(self._wire.send_notification(method, params))

    def notify_delayed(self, key: object, method: str, params: object) -> None:
        """Send a notification with the next message, or after :data:`DELAY_S`. Until then, a later one with this key
        replaces it.
        """
        if not self.closed:
            self._delay(key, self._wire.send_notification(method, params))

    async def request(self, method: str, params: object, result: type[T]) -> T:
        """Call the other side.

        Raises:
            RpcError: the other side answered with this error.
            ConnectionResetError: the connection was lost before the answer came.
        """
        return read(await self.start_request(method, params), result)

    def start_request(self, method: str, params: object) -> asyncio.Future[Any]:
        """Start a request without a coroutine; the future has the raw result, or the errors of :meth:`request`.

        Raises:
            ConnectionResetError: not connected; nothing was sent.
        """
        if self.closed:
            raise ConnectionResetError("not connected")
        request_id, data = self._wire.send_request(method, params)
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting[request_id] = future
        self._send(data)
        return future

    def send_together(self, *senders: Callable[[RpcPeer], object]) -> None:
        """Call each with this peer, and write what they send now, in one write; or after the read being handled."""
        outermost, self._gathering = not self._gathering, True
        try:
            for send in senders:
                send(self)
        finally:
            if outermost:
                self._gathering = False
                self._flush()

    def close(self) -> None:
        """Flush and close; ``disconnected`` follows."""
        self.closed = True
        self._send_delayed()
        if self._transport is not None:
            self._transport.close()

    def get_extra_info(self, name: str) -> Any:
        """Return ``asyncio.BaseTransport.get_extra_info``; None if the connection is lost."""
        return None if self._transport is None else self._transport.get_extra_info(name)

    # ------------------------------------------------------------ inside

    def _handle(self, message: Message | Malformed | Closed) -> None:
        if isinstance(message, Notification):
            try:
                self._handler.notification(self, message.method, message.params)
            except RpcError as error:
                self._send(self._wire.send_notification(ErrorBody.METHOD, error.body))
            except Exception as error:  # noqa: BLE001 - the root of a notification
                self._handler.internal_error(self, message.method, error)
        elif isinstance(message, Request):
            self._serve(message.id, message.method, message.params)
        elif isinstance(message, Response):
            future = self._waiting.pop(message.id, None)
            if future is None or future.done():
                return  # the caller was cancelled
            if message.error is None:
                future.set_result(message.result)
            else:
                future.set_exception(RpcError.of(message.error))
        elif isinstance(message, Closed):
            self._out.append(self._wire.send_notification(ErrorBody.METHOD, message.error))
            self.close()
        elif message.reply_to is None:
            self._send(self._wire.send_notification(ErrorBody.METHOD, message.error))
        else:
            self._send(self._wire.send_error(message.reply_to, message.error))

    def _send(self, data: bytes) -> None:
        self._out.append(data)
        if not self._gathering and not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _delay(self, key: object, data: bytes) -> None:
        self._delayed.pop(key, None)  # the newest is the last
        if self._out:  # it leaves this turn: this message must not overtake those in it
            self._out.append(data)
            return
        self._delayed[key] = data
        if self._delay_end is None:
            self._delay_end = self._loop.call_later(DELAY_S, self._send_delayed)

    def _send_delayed(self) -> None:
        self._out[:0] = self._take_delayed()
        self._flush()

    def _take_delayed(self) -> list[bytes]:
        if self._delay_end is not None:
            self._delay_end.cancel()
            self._delay_end = None
        delayed = list(self._delayed.values())
        self._delayed.clear()
        return delayed

    def _flush(self) -> None:
        self._flush_scheduled = False
        if not self._out:
            return
        if self._delayed:
            self._out[:0] = self._take_delayed()
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        transport = self._transport
        if transport is None:
            return
        if self._fd >= 0 and not transport.get_write_buffer_size():  # uvloop writes only at the end of the turn
            sent = 0
            try:  # noqa: SIM105 - the context would cost a thirtieth of a grant
                sent = os.write(self._fd, data)
            except OSError:  # the buffer is full or the peer is gone; the transport detects and handles both
                pass
            if sent == len(data):
                return
            data = data[sent:]
        transport.write(data)
        self._wrote(transport, len(data))

    def _wrote(self, transport: asyncio.Transport, written_bytes: int) -> None:
        """Cut off the peer if too much waits in the transport because the kernel did not take all at once."""
        if transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self.closed = True
            transport.abort()

    def _serve(self, request_id: int, method: str, params: Any) -> None:
        try:
            result = self._handler.request(self, method, params)
        except Exception as error:  # noqa: BLE001 - the root of a request: whatever fails, the caller is answered
            self._failed(request_id, method, error)
            return
        if isinstance(result, Coroutine):
            task = self._loop.create_task(self._serve_later(request_id, method, result))
            self._tasks.add(task)
            task.add_done_callback(self._served)
        elif isinstance(result, Delayed):
            self._delay(("answer", request_id), self._wire.send_response(request_id, result.result))
        else:
            self._send(self._wire.send_response(request_id, result))

    def _served(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)

    async def _serve_later(self, request_id: int, method: str, result: Coroutine[Any, Any, object]) -> None:
        try:
            response = self._wire.send_response(request_id, await result)
        except Exception as error:  # noqa: BLE001 - the root of a request: whatever fails, the caller is answered
            self._failed(request_id, method, error)
        else:
            self._send(response)

    def _failed(self, request_id: int, method: str, error: Exception) -> None:
        if isinstance(error, RpcError):
            self._send(self._wire.send_error(request_id, error.body))
            return
        self._handler.internal_error(self, method, error)
        body = ErrorBody(ErrorCode.INTERNAL, f"{method} failed: {type(error).__name__}")
        self._send(self._wire.send_error(request_id, body))


def unknown_method(method: str, known: Iterable[str]) -> RpcError:
    """Return the error for an unknown method."""
    names = ", ".join(sorted(known))
    return bad_request(f"unknown method {method[:80]!r}", field="method", remedy=f"one of {names}" if names else "")


async def connect_unix(
    path: str, handler: Handler, typed: Mapping[str, type[Any]] = NO_TYPES, max_frame_bytes: int = MAX_FRAME_BYTES
) -> RpcPeer:
    """Connect to a Unix socket; ``typed``: see :class:`penstock.wire.RpcConnection`.

    Wait while the server's queue is full. The kernel then returns EAGAIN, which asyncio mistakes for a pending
    connection, as with TCP: it goes on with an unconnected socket, whose other end seems to run as uid 4294967295.

    Raises:
        OSError: no process listens there, we may not connect, or the queue stays full.
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + _QUEUE_S
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.setblocking(False)
        while True:
            try:
                connection.connect(path)
                break
            except BlockingIOError:
                if loop.time() >= give_up:
                    raise BlockingIOError(f"too many connect to {path} at once; try later") from None
            await asyncio.sleep(_QUEUE_PAUSE_S)
    except BaseException:
        connection.close()
        raise
    wire = RpcConnection(max_frame_bytes, typed)
    _, peer = await loop.create_unix_connection(lambda: RpcPeer(handler, wire), sock=connection)
    return peer


async def connect_tcp(
    host: str,
    port: int,
    handler: Handler,
    tls: ssl.SSLContext,
    name: str = "",
    max_frame_bytes: int = MAX_FRAME_BYTES,
) -> RpcPeer:
    """Connect over TCP to a peer that shows a certificate for ``name`` (default: the host).

    Raises:
        OSError: no process listens there; ssl.SSLError: one side refused the other's certificate.
    """
    _, peer = await asyncio.get_running_loop().create_connection(
        lambda: RpcPeer(handler, RpcConnection(max_frame_bytes)), host, port,
        ssl=tls, server_hostname=name or host, ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
    )  # fmt: skip
    return peer
