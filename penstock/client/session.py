"""A blocking, persistent connection to the host's agent without an event loop, for commands with few requests.

Importing asyncio would add about half to the processor time of such a command. A wait is one ``poll()`` of the socket
and the signals. Frameworks use :class:`penstock.client.AgentClient`.
"""

from __future__ import annotations

import _socket as socket  # as in penstock.peer_credentials
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from penstock.client.errors import AgentUnavailable
from penstock.client.greeting import HELLO_S, Greeting, pauses_s, unavailable
from penstock.client.stdio import connected
from penstock.wire.connection import Closed, Malformed, RpcConnection, read
from penstock.wire.connection_api import HELLO, Welcome
from penstock.wire.errors import ErrorBody, RpcError
from penstock.wire.method import Method, P, R
from penstock.wire.rpc import Notification, Response

if TYPE_CHECKING:
    from penstock.client.signals import Signals

_READ_BYTES = 65536


class Owner(Protocol):
    """The user of a session. It is called from within :meth:`Session.call` and :meth:`Session.wait`."""

    def notified(self, method: str, params: Any) -> None:
        """Handle a notification; ``params`` is for ``wire.read_params``. Must not call the agent."""

    def relink(self) -> None:
        """Announce to a new connection what the agent must know, by :meth:`Session.call_once`.

        Raises:
            ConnectionResetError: the connection was lost again.
        """

    def linked(self, linked: bool) -> None:
        """Handle the start (False) or the end (True) of an outage."""


class Session:
    """Made by :meth:`connect`. Calls and waits continue across restarts of the agent; each outage may last
    ``patience_s`` seconds. The owner is notified of an outage once it has lasted ``told_after_s`` seconds."""

    welcome: Welcome
    _wire: RpcConnection  # of this connection

    def __init__(self, path: Path, client: str, patience_s: float, told_after_s: float) -> None:
        self.socket_path = path
        self.owner: Owner | None = None
        self.signals: Signals | None = None
        self._patience_s = patience_s
        self._told_after_s = told_after_s
        self._socket: socket.socket | None = None
        self._answers: dict[int, Response[Any]] = {}
        self._greeting = Greeting(str(path), client)

    @classmethod
    def connect(
        cls,
        path: Path,
        client: str,
        *,
        patience_s: float = 0.0,
        told_after_s: float = 0.0,
        signals: Signals | None = None,
    ) -> Self:
        """Connect to the agent and exchange the greeting.

        Raises:
            AgentUnavailable: there is no usable agent; the message is one line with the cause and the remedy.
        """
        self = cls(path, client, patience_s, told_after_s)
        self.signals = signals
        self._greet()
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._hang_up()

    def call(self, method: Method[P, R], params: Callable[[], P]) -> R:
        """Call until an answer comes; ``params`` is evaluated for each attempt, as a job's id may change.

        Raises:
            RpcError: the agent's answer.
            AgentUnavailable: the agent was away for longer than ``patience_s``.
        """
        while True:
            try:
                return self.call_once(method, params)
            except ConnectionResetError:
                self._mend()

    def call_once(
        self, method: Method[P, R], params: Callable[[], P], patience_s: Callable[[], float | None] = lambda: None
    ) -> R:
        """Call once. ``patience_s`` is evaluated before each wait for the answer; None: no limit.

        Raises:
            RpcError: the agent's answer.
            ConnectionResetError: the connection was lost before the answer came.
            TimeoutError: the wait took longer than ``patience_s``.
        """
        number, data = self._wire.send_request(method.name, params())
        self._send(data)
        while number not in self._answers:
            if not self._poll(patience_s()):
                raise TimeoutError
        answer = self._answers.pop(number)
        if answer.error is not None:
            raise RpcError.of(answer.error)
        return read(answer.result, method.result)

    def notify(self, method: Method[P, Any], params: P) -> bool:
        """Call without an answer; return whether the connection accepted it."""
        try:
            self._send(self._wire.send_notification(method.name, params))
        except ConnectionResetError:
            return False
        return True

    def wait(self, timeout_s: float | None) -> None:
        """Wait for a message, a signal or the timeout.

        Raises:
            AgentUnavailable: the agent was away for longer than ``patience_s``.
        """
        if self._socket is not None:
            try:
                self._poll(timeout_s)
                return
            except ConnectionResetError:
                pass
        self._mend()

    # ------------------------------------------------------------ inside

    def _greet(self) -> None:
        hello = self._greeting.begin()
        self._wire = RpcConnection()
        self._answers.clear()
        give_up = time.monotonic() + HELLO_S
        try:
            self._socket = connected(self.socket_path, socket.SOCK_STREAM)
            self.welcome = self.call_once(HELLO, lambda: hello, lambda: max(0.0, give_up - time.monotonic()))
        except (RpcError, OSError) as error:
            self._hang_up()
            raise self._greeting.failure(error) from None

    def _mend(self) -> None:
        """Reconnect with back-off.

        Raises:
            AgentUnavailable: all attempts within ``patience_s`` failed.
        """
        began = time.monotonic()
        notified = False
        pauses = pauses_s()
        while True:
            away_s = time.monotonic() - began
            if not notified and away_s >= self._told_after_s and self.owner is not None:
                notified = True
                self.owner.linked(False)
            try:
                self._greet()
                if self.owner is not None:
                    self.owner.relink()
                break
            except ConnectionResetError as lost:
                error = unavailable(str(self.socket_path), lost)
            except AgentUnavailable as problem:
                error = problem
            if time.monotonic() - began >= self._patience_s:
                raise AgentUnavailable(f"{error} (tried for {self._patience_s:g} s)") from None
            self._poll(next(pauses))
        if notified and self.owner is not None:
            self.owner.linked(True)

    def _send(self, data: bytes) -> None:
        if self._socket is None:
            raise ConnectionResetError
        try:
            self._socket.sendall(data)
        except OSError:
            self._lose()

    def _poll(self, timeout_s: float | None) -> bool:
        """Read from the socket and handle signals; return whether either was ready in time."""
        poll = select.poll()
        sock, signals = self._socket, self.signals
        if sock is not None:
            poll.register(sock, select.POLLIN)
        if signals is not None:
            poll.register(signals, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(None if timeout_s is None else timeout_s * 1e3)}
        if sock is not None and sock.fileno() in ready:
            self._read(sock)
        if signals is not None and signals.fileno() in ready:
            signals.noticed()
        return bool(ready)

    def _read(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(_READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self._lose()
        for message in self._wire.messages(data):
            if isinstance(message, Response):
                self._answers[message.id] = message
            elif isinstance(message, Notification):
                if message.method == ErrorBody.METHOD:
                    self._greeting.refused(message.params)
                elif self.owner is not None:
                    self.owner.notified(message.method, message.params)
            elif isinstance(message, Closed | Malformed):  # agents do not send these
                self._lose()

    def _lose(self) -> None:
        self._hang_up()
        raise ConnectionResetError

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
