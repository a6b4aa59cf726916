"""A persistent connection to the agent: it reconnects with back-off and greets before any other message."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from penstock.client.errors import AgentUnavailable
from penstock.client.greeting import HELLO_S, Greeting, pauses_s, unavailable
from penstock.peer_credentials import check_server
from penstock.transport.peer import RpcPeer, connect_unix, unknown_method
from penstock.wire.agent_api import Welcome
from penstock.wire.agent_methods import HELLO, TYPED
from penstock.wire.errors import ErrorBody, RpcError
from penstock.wire.method import Method, P, R


async def ask_over(peer: RpcPeer, method: Method[P, R], params: P) -> R:
    """Call over this connection.

    Raises:
        RpcError: the agent's answer.
        ConnectionResetError: the connection was lost before the answer came.
    """
    return await peer.request(method.name, params, method.result)


class Owner(Protocol):
    """The user of a link."""

    async def relink(self, peer: RpcPeer) -> None:
        """Announce the client's state over a new, greeted connection, before the link is open to calls."""

    def unlinked(self) -> None:
        """The connection was lost; the link tries to reconnect."""

    def failed(self, error: AgentUnavailable) -> None:
        """The link gave up, or was closed; no call follows."""

    def notified(self, peer: RpcPeer, method: str, params: Any) -> None:
        """Handle a notification from the agent."""


class Link:
    """See the module's docstring. Create it in a running loop, then call :meth:`start`."""

    welcome: Welcome  # of the latest agent that greeted

    def __init__(self, socket: Path, client: str, owner: Owner, *, reconnect_s: float) -> None:
        self.socket = socket
        self._owner = owner
        self._reconnect_s = reconnect_s
        self._peer: RpcPeer | None = None
        self._open = asyncio.Event()
        self._failure: AgentUnavailable | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self._gone = asyncio.Event()
        self._greeting = Greeting(str(socket), client)

    async def start(self) -> None:
        """Connect for the first time.

        Raises:
            AgentUnavailable: no server answers, or the server does not support this protocol.
        """
        self._peer = await self._greet()
        self._open.set()

    async def close(self) -> None:
        """Close the connection; pending and later calls fail with ``AgentUnavailable``."""
        self._fail(AgentUnavailable("this client was closed"))
        try:
            if self._reconnecting is not None and not self._reconnecting.done():
                self._reconnecting.cancel()
                await asyncio.wait([self._reconnecting])  # awaiting the task would hide that the caller is cancelled
        finally:
            if self._peer is not None:
                self._peer.close()
        if self._peer is not None:
            with contextlib.suppress(TimeoutError):  # an agent that does not read must not block us
                async with asyncio.timeout(1.0):  # wait_for() loses a cancellation (Python 3.11)
                    await self._gone.wait()

    def peer(self) -> RpcPeer | None:
        """Return the connection if it is open to calls now."""
        return self._peer if self._open.is_set() and self._peer is not None and not self._peer.closed else None

    async def call(self, method: Method[P, R], params: Callable[[], P]) -> R:
        """Call until an answer comes; ``params`` is evaluated for each attempt, as a job's id may change.

        Raises:
            RpcError: the agent's answer.
            AgentUnavailable: the link gave up.
        """
        while True:
            with contextlib.suppress(ConnectionResetError):
                return await self.call_once(method, params)

    async def ask(self, method: Method[P, R], params: P) -> R:
        """Call with the same parameters for each attempt; see :meth:`call`."""
        return await self.call(method, lambda: params)

    async def ask_once(self, method: Method[P, R], params: P, lost: str) -> R:
        """Call once, as a repeated request could be executed twice.

        Raises:
            AgentUnavailable: the connection was lost during this call; ``lost`` is the message.
        """
        try:
            return await self.call_once(method, lambda: params)
        except ConnectionResetError:
            raise AgentUnavailable(lost) from None

    async def call_once(self, method: Method[P, R], params: Callable[[], P]) -> R:
        """Wait for the link, then call once.

        Raises:
            RpcError: the agent's answer.
            AgentUnavailable: the link gave up before the call was sent.
            ConnectionResetError: the connection was lost before the answer came.
        """
        while True:
            if self._failure is not None:
                raise self._failure
            if (peer := self.peer()) is not None:
                return await ask_over(peer, method, params())
            self._open.clear()  # also if our side aborted the connection; disconnected() follows
            await self._open.wait()

    def notify(self, method: Method[P, Any], params: P) -> None:
        """Call without an answer. A call during an outage is dropped."""
        if (peer := self.peer()) is not None:
            peer.notify(method.name, params)

    # ------------------------------------------------------------ transport.Handler

    def connected(self, peer: RpcPeer) -> None:
        """Called by the peer."""

    def request(self, peer: RpcPeer, method: str, params: Any) -> object:
        """Called by the peer; agents send no requests."""
        raise unknown_method(method, {})

    def notification(self, peer: RpcPeer, method: str, params: Any) -> None:
        """Called by the peer."""
        if method == ErrorBody.METHOD:
            self._greeting.refused(params)
        self._owner.notified(peer, method, params)

    def internal_error(self, peer: RpcPeer, method: str, error: Exception) -> None:
        """Called by the peer: report a defect of this client to the loop's exception handler."""
        self._report(method, error)

    def disconnected(self, peer: RpcPeer, error: Exception | None) -> None:
        """Called by the peer."""
        if self._failure is None:
            self._owner.unlinked()
        if peer is not self._peer:
            return  # its greeting was in progress; _reconnect handles the loss
        self._gone.set()
        if self._failure is None:
            self._peer = None
            self._open.clear()
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    # ------------------------------------------------------------ inside

    async def _greet(self) -> RpcPeer:
        hello = self._greeting.begin()
        peer = None
        try:
            peer = await connect_unix(str(self.socket), self, TYPED)
            server = peer.get_extra_info("socket")
            if server is not None:  # otherwise it closed at once, and the next call fails
                check_server(server, self.socket)
            async with asyncio.timeout(HELLO_S):
                self.welcome = await ask_over(peer, HELLO, hello)
            return peer
        except BaseException as error:
            if peer is not None:
                peer.close()
            if isinstance(error, RpcError | OSError):
                raise self._greeting.failure(error) from None
            raise

    async def _reconnect(self) -> None:
        try:
            await self._try_until_open()
        except Exception as error:  # noqa: BLE001 - the outermost frame of a task: callers must not wait for ever
            self._report("reconnect", error)
            self._fail(AgentUnavailable(f"reconnecting to {self.socket} failed: {error}"))

    async def _try_until_open(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._reconnect_s
        pauses = pauses_s()
        while True:
            try:
                self._peer = await self._greet_and_relink()
            except AgentUnavailable as error:
                if loop.time() >= deadline:
                    self._fail(AgentUnavailable(f"{error} (tried for {self._reconnect_s:g} s)"))
                    return
            else:
                self._gone.clear()
                self._open.set()
                return
            await asyncio.sleep(next(pauses))

    async def _greet_and_relink(self) -> RpcPeer:
        peer = await self._greet()
        try:
            await self._owner.relink(peer)
        except ConnectionResetError:
            pass
        except BaseException:
            peer.close()
            raise
        if peer.closed:
            raise unavailable(str(self.socket), ConnectionResetError())
        return peer

    def _fail(self, error: AgentUnavailable) -> None:
        if self._failure is None:
            self._failure = error
            self._open.set()
            self._owner.failed(error)

    @staticmethod
    def _report(what: str, error: Exception) -> None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"penstock client: {what!r} failed", "exception": error}
        )
