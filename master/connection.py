"""One agent's connection: its messages become events of the core, in order, and decisions are sent back on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol

import structlog

from master.core import events as e
from master.core.instructions import SendDecisions
from master.core.settings import MasterSettings
from penstock import __version__
from penstock.security import tls
from penstock.transport import RpcPeer
from penstock.transport.peer import unknown_method
from penstock.wire import master_api as api
from penstock.wire.agent_api import Done, Result
from penstock.wire.agent_methods import HELLO
from penstock.wire.connection import read, read_params
from penstock.wire.errors import ErrorBody, ErrorCode, RpcError, bad_request, refused
from penstock.wire.reservation_api import OnBehalf

log = structlog.get_logger()

#: Answers a user's request relayed by a node's agent.
Relayed = Callable[[OnBehalf, str], Awaitable[Result]]


class ConnectionOwner(Protocol):
    """Receives the events of agents' connections (:class:`master.service.MasterService`)."""

    def connected(self, connection: AgentConnection) -> None:
        """Keep a connection whose peer was authenticated; it has not registered yet."""

    def register(self, connection: AgentConnection, message: api.Register) -> MasterSettings:
        """Make this the node's connection; return the settings in force.

        Raises: RpcError: another live connection has this name; or the message is invalid.
        """
        ...

    def received(self, connection: AgentConnection, event: e.Received | e.Answered) -> None:
        """Handle a message or an answer of a registered node.

        Raises: RpcError: the message is invalid.
        """

    async def end_acknowledged(self, said: api.CommandEnded) -> None:
        """Wait until the origin has confirmed a command's end."""

    def joined(self, job: str) -> api.JobJoined:
        """Return the answer to an accepted request to join a job."""
        ...

    def gone(self, connection: AgentConnection) -> None:
        """Handle the end of a connection."""


class AgentConnection:
    """One agent's connection. Before registration it accepts only ``register``."""

    def __init__(self, owner: ConnectionOwner, relayed: Mapping[str, Relayed]) -> None:
        """``relayed``: requests of users on the agent's host, by method; answered in order."""
        self._owner = owner
        self._relayed = relayed
        self._loop = asyncio.get_running_loop()
        self._peer: RpcPeer | None = None
        self._waiting: list[SendDecisions] | None = []  # until `register` has been answered
        self._names: tuple[str, ...] | None = None  # the names in its certificate; None: without TLS
        self.node = ""
        self.address = ""
        self.host = ""  # the address without the port or process, which differ from one connection to the next
        self.heard_at = 0.0

    def send(self, instruction: SendDecisions) -> None:
        """Send a ``decide`` request; its answer becomes the event ``Answered``."""
        if self._waiting is not None:
            self._waiting.append(instruction)
        elif self._peer is not None:
            params = api.Decide(number=instruction.number, decisions=instruction.decisions)
            try:
                answer = self._peer.start_request(api.DECIDE.name, params)
            except (ConnectionResetError, RpcError) as error:
                self.hang_up(f"a decision could not be sent: {error}")
                return
            answer.add_done_callback(partial(self._decided, instruction))

    def name_tenants(self, tenants: dict[str, tuple[str, float]] | None) -> None:
        """Tell the agent the configured tenants; an older agent complains, and learns them with its jobs."""
        if self._peer is not None:
            self._peer.notify(api.NAME_TENANTS.name, api.NAME_TENANTS.params(tenants=tenants))

    def hang_up(self, reason: str) -> None:
        """Close the connection; the agent registers again, which reports its true state."""
        log.warning("connection closed", node=self.node, address=self.address, reason=reason)
        self.close()

    def check_certificates(self, contexts: tls.Contexts | None) -> None:
        """Close the connection if the CA or its list has changed since the connection was made."""
        peer = self._peer
        if contexts is not None and peer is not None and contexts.outdated(peer.get_extra_info("sslcontext")):
            self.hang_up("the CA or its list has changed; the agent has to present its certificate again")

    def close(self) -> None:
        """Close the connection; ``disconnected`` follows."""
        if self._peer is not None:
            self._peer.close()

    def _decided(self, sent: SendDecisions, answer: asyncio.Future[Any]) -> None:
        """Handle the agent's answer."""
        if answer.cancelled() or isinstance(answer.exception(), ConnectionResetError):
            return  # the end of the connection is a separate event
        try:
            said = answer.result()
        except RpcError as error:
            if error.code is not ErrorCode.BAD_REQUEST:
                self.hang_up(f"{self.node} failed on a decision: {error}")
                return
            reason = str(error)  # the agent did not understand the request, so it carried out nothing
            refused_all = [api.Refusal(index=i, reason=reason) for i in range(len(sent.decisions))]
            self._owner.received(self, e.Answered(self.node, sent.number, refused_all))
            return
        try:
            decided = read(said, api.Decided)
        except RpcError as error:  # it may have been carried out: `register` reports the true state
            self.hang_up(f"{self.node} answered a decision with what is no answer: {error}")
            return
        self._owner.received(self, e.Answered(self.node, sent.number, decided.refused, decided.places_known))

    # ------------------------------------------------------------ Handler

    def connected(self, peer: RpcPeer) -> None:
        """Note the address of an authenticated peer: its certificate is valid, or its user is trusted."""
        self._peer = peer
        name = peer.get_extra_info("peername")
        self.host, self.address = (name[0], f"{name[0]}:{name[1]}") if name else ("this host", "this host")
        if peer.get_extra_info("sslcontext") is not None:
            self._names = tls.names(peer.get_extra_info("peercert"))
        self._owner.connected(self)

    def request(self, peer: RpcPeer, method: str, params: list[Any]) -> object:
        """Raises: RpcError: the message is invalid, or out of order."""
        if method in self._relayed and self.node:
            return self._relayed[method](read_params(params, OnBehalf), self.node)
        message = self._read(method, params)
        return self._register(message) if isinstance(message, api.Register) else self._heed(message)

    def notification(self, peer: RpcPeer, method: str, params: list[Any]) -> None:
        """Handle a message as a request without an answer; errors are returned as the notification ``error``."""
        if method == "error":
            log.warning("an agent complains", node=self.node, why=str(RpcError.of(read_params(params, ErrorBody))))
            return
        message = self._read(method, params)
        if isinstance(message, api.Register):
            self._register(message)
            return
        # The answer to a decision is handled in the loop's next turn, so later messages must be, too: the core relies
        # on the order of the connection.
        self._loop.call_soon(self._notified, method, message)

    def disconnected(self, peer: RpcPeer, error: Exception | None) -> None:
        """Report the lost connection; the node has some time to come back."""
        self._peer = None
        self._owner.gone(self)

    def internal_error(self, peer: RpcPeer, method: str, error: Exception) -> None:
        """Log an error of the master."""
        log.error("a message could not be handled", node=self.node, method=method, exc_info=error)

    def _read(self, method: str, params: list[Any]) -> e.Message:
        if method not in api.REQUESTS:
            if method == HELLO.name:
                raise bad_request(
                    "this is the master, which only agents connect to",
                    remedy="connect to this host's agent, agent.sock",
                )
            raise unknown_method(method, api.REQUESTS)
        message = read_params(params, api.REQUESTS[method].params)
        if not self.node and not isinstance(message, api.Register):
            raise bad_request("a connection starts with `register`", field="method")
        self.heard_at = time.monotonic()
        assert isinstance(message, e.Message)
        return message

    async def _heed(self, message: e.Message) -> Done | api.JobJoined:
        """Handle a message; a coroutine, so that messages are handled in order (see :meth:`notification`)."""
        self._owner.received(self, e.Received(self.node, message))
        if isinstance(message, api.CommandEnded):
            await self._owner.end_acknowledged(message)
        return self._owner.joined(message.job) if isinstance(message, api.JoinJob) else Done()

    def _notified(self, method: str, message: e.Message) -> None:
        try:
            self._owner.received(self, e.Received(self.node, message))
        except RpcError as error:
            if self._peer is not None:
                self._peer.notify(error.body.METHOD, error.body)
        except Exception as error:  # the root of a notification
            log.error("a message could not be handled", node=self.node, method=method, exc_info=error)

    def _register(self, message: api.Register) -> api.Registered:
        if self.node:
            raise refused(f"this connection is registered as {self.node!r} already", field="node")
        if self._names is not None and message.node not in self._names:
            carried = ", ".join(map(repr, self._names)) or "nobody"
            raise refused(
                f"node {message.node!r} shows a certificate for {carried}",
                field="node",
                remedy=f"set `node` to that, or `penstock ca issue {message.node}`",
            )
        settings = self._owner.register(self, message)
        self._loop.call_soon(self._answered_registration, settings.configured_tenants())
        return api.Registered(
            protocol=api.PROTOCOL,
            version=__version__,
            heartbeat_s=settings.heartbeat_s,
            profile_gaps=True,
            last_parts=True,
            job_lasts=True,
            job_failed=True,
            most_commands=True,
            ranks=True,
            rank_tenants=True,
            commands=True,
            jobs_at_end=True,
            skipped_tasks=True,
        )

    def _answered_registration(self, tenants: dict[str, tuple[str, float]] | None) -> None:
        if tenants is not None:
            self.name_tenants(tenants)
        waiting, self._waiting = self._waiting or [], None
        for instruction in waiting:
            self.send(instruction)
