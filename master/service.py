"""The RPC server: agents connect, register, report and relay; the cluster's decisions go back to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Gauge, Histogram

from master import drains, jobs
from master.core import Cluster, MasterSettings
from master.core import events as e
from master.core.instructions import Explain, Hangup, Instruction, Keep, Predict, SendDecisions, StoreRun
from master.forecasting import Forecasting, unforeseen
from master.overview import Overview
from master.prediction.application import ForecastSettings
from master.remembering import Remembering
from penstock import __version__
from penstock.config.answers import Configuring
from penstock.security import tls
from penstock.transport import Listener, RpcPeer
from penstock.transport.peer import unknown_method
from penstock.wire import master_api as api
from penstock.wire.agent_api import Done, Result
from penstock.wire.connection import read, read_params
from penstock.wire.errors import ErrorCode, RpcError, bad_request, refused, unavailable
from penstock.wire.reservation_api import OnBehalf

log = structlog.get_logger()


class AgentConnection:
    """One agent's connection. Nothing but ``register`` is understood before it has registered."""

    def __init__(self, service: MasterService) -> None:
        self._service = service
        self._peer: RpcPeer | None = None
        self._waiting: list[SendDecisions] | None = []  # until `register` has been answered
        self._names: tuple[str, ...] | None = None  # that its certificate carries; None: without TLS
        self.node = ""
        self.address = ""
        self.heard_at = 0.0
        #: What users of the agent's host ask, by method; answered in its turn.
        self._relayed: dict[str, Callable[[OnBehalf], Awaitable[Result]]] = {
            "reservation": service.on_behalf,
            "cluster_status": service.of_cluster,
            "configuration": lambda asked: service.of_configuration(asked, self.node),
            "nodes": service.of_nodes,
            "jobs": service.of_jobs,
        }

    def send(self, instruction: SendDecisions) -> None:
        """A ``decide`` request; its answer becomes the event ``Answered``."""
        if self._waiting is not None:
            self._waiting.append(instruction)
        elif self._peer is not None:
            params = api.Decide(number=instruction.number, decisions=instruction.decisions)
            try:
                answer = self._peer.start_request("decide", params)
            except (ConnectionResetError, RpcError) as error:
                self.hang_up(f"a decision could not be sent: {error}")
                return
            answer.add_done_callback(partial(self._decided, instruction))

    def hang_up(self, reason: str) -> None:
        """Close; the agent registers again, which tells what is true."""
        log.warning("connection closed", node=self.node, address=self.address, reason=reason)
        self.close()

    def judge_anew(self) -> None:
        """Hang up if the CA or its list is another now than when this connection was made."""
        contexts, peer = self._service.contexts, self._peer
        if contexts is not None and peer is not None and contexts.outdated(peer.get_extra_info("sslcontext")):
            self.hang_up("the CA or its list has changed, so whoever it is shows his certificate anew")

    def close(self) -> None:
        """Close; ``disconnected`` follows."""
        if self._peer is not None:
            self._peer.close()

    def _decided(self, sent: SendDecisions, answer: asyncio.Future[Any]) -> None:
        """The agent's answer."""
        if answer.cancelled() or isinstance(answer.exception(), ConnectionResetError):
            return  # the end of the connection is an event of its own
        try:
            decided = read(answer.result(), api.Decided)
        except RpcError as error:
            if error.code is not ErrorCode.BAD_REQUEST:
                self.hang_up(f"{self.node} failed on a decision: {error}")
                return
            reason = str(error)  # not understood, so not carried out
            decided = api.Decided(refused=[api.Refusal(index=i, reason=reason) for i in range(len(sent.decisions))])
        self._service.said_by(self, e.Answered(self.node, sent.number, decided.refused))

    # ------------------------------------------------------------ Handler

    def connected(self, peer: RpcPeer) -> None:
        """Somebody connected; nothing is known about it yet."""
        self._peer = peer
        name = peer.get_extra_info("peername")
        self.address = f"{name[0]}:{name[1]}" if name else "?"
        if peer.get_extra_info("sslcontext") is not None:
            self._names = tls.names(peer.get_extra_info("peercert"))
        self._service.connections.add(self)
        self.judge_anew()  # the handshake may have begun before it changed

    def request(self, peer: RpcPeer, method: str, params: list[Any]) -> object:
        """Raises: RpcError: what was said makes no sense, or is out of order."""
        if method in self._relayed and self.node:
            return self._relayed[method](read_params(params, OnBehalf))
        message = self._read(method, params)
        return self._register(message) if isinstance(message, api.Register) else self._heed(message)

    def notification(self, peer: RpcPeer, method: str, params: list[Any]) -> None:
        """As a request, without an answer; errors come back as the notification ``error``."""
        if method == "error":
            log.warning("an agent complains", node=self.node, params=params)
            return
        message = self._read(method, params)
        if isinstance(message, api.Register):
            self._register(message)
            return
        # The answer to a decision is dealt with in the loop's next turn, so what came after it must be, too: the core
        # relies on the order of the connection.
        asyncio.get_running_loop().call_soon(self._notified, method, message)

    def disconnected(self, peer: RpcPeer, error: Exception | None) -> None:
        """The node has some time to come back."""
        self._peer = None
        self._service.gone(self)

    def internal_error(self, peer: RpcPeer, method: str, error: Exception) -> None:
        """Ours."""
        log.error("a message could not be handled", node=self.node, method=method, exc_info=error)

    def _read(self, method: str, params: list[Any]) -> e.Message:
        if method not in api.REQUESTS:
            raise unknown_method(method, api.REQUESTS)
        message = read_params(params, api.REQUESTS[method][0])
        if not self.node and not isinstance(message, api.Register):
            raise bad_request("a connection starts with `register`", field="method")
        self.heard_at = time.monotonic()
        assert isinstance(message, e.Message)
        return message

    async def _heed(self, message: e.Message) -> Done | api.JobJoined:
        """A coroutine, so that it runs in its turn (see :meth:`notification`)."""
        self._service.said_by(self, e.Said(self.node, message))
        return self._service.cluster.joined(message.job) if isinstance(message, api.JoinJob) else Done()

    def _notified(self, method: str, message: e.Message) -> None:
        try:
            self._service.said_by(self, e.Said(self.node, message))
        except RpcError as error:
            if self._peer is not None:
                self._peer.notify("error", error.body)
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
        self._service.register(self, message)
        asyncio.get_running_loop().call_soon(self._answered_registration)
        return api.Registered(
            protocol=api.PROTOCOL, version=__version__, heartbeat_s=self._service.cluster.settings.heartbeat_s
        )

    def _answered_registration(self) -> None:
        waiting, self._waiting = self._waiting or [], None
        for instruction in waiting:
            self.send(instruction)


class MasterService:
    """Feeds the cluster's core and carries out what it says; runs rounds when there is something to place."""

    def __init__(self, cluster: Cluster, registry: CollectorRegistry) -> None:
        self.cluster = cluster
        self.connections: set[AgentConnection] = set()
        self._by_node: dict[str, AgentConnection] = {}
        self._loop = asyncio.get_running_loop()
        self._round: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._last_round = -cluster.settings.interval_s
        self._port: Listener | None = None
        #: For the port; set before :meth:`listen`.
        self.contexts: tls.Contexts | None = None
        #: What answers what executors will use; without one their bounds are reserved, and no run is kept.
        self.forecasting: Forecasting | None = None
        #: What writes down what the next master is to know; without one it is forgotten.
        self.remembering: Remembering | None = None
        silence = Gauge(
            "penstock_master_heartbeat_age_max_seconds",
            "How long ago the connected node that has been silent longest said something.",
            registry=registry,
        )
        silence.set_function(self._silence_s)
        self._round_seconds = Histogram(
            "penstock_master_round_seconds",
            "Time that a scheduling round took.",
            registry=registry,
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
        )
        self.address = ""
        #: What shows the cluster to who asks through his host's agent.
        self.overview: Overview | None = None
        #: What answers operators about our configuration.
        self.configuring: Configuring | None = None
        #: What answers calls about reservations; none are taken until somebody does.
        self.reservations: Callable[[OnBehalf], Awaitable[Result]] | None = None

    async def on_behalf(self, asked: OnBehalf) -> Result:
        """A call about reservations.

        Raises:
            RpcError: the answer; ``unavailable`` where nobody answers.
        """
        if self.reservations is None:
            raise unavailable("this master takes no reservations", remedy="see its log: its store could not be opened")
        return await self.reservations(asked)

    async def of_cluster(self, asked: OnBehalf) -> Result:
        """What this user may see of the cluster."""
        if self.overview is None:
            raise unavailable("this master does not show its cluster")
        return self.overview.answer(asked)

    async def of_nodes(self, asked: OnBehalf) -> Result:
        """A call about nodes that are drained; a coroutine, so that it is answered in its turn."""
        said = drains.answer(self.cluster, asked, self._dispatch, time.time())
        if self.remembering is not None:
            await self.remembering.written()
        return said

    async def of_jobs(self, asked: OnBehalf) -> Result:
        """A call about jobs, in its turn, too."""
        return jobs.answer(self.cluster, self._dispatch, asked, time.monotonic())

    async def of_configuration(self, asked: OnBehalf, node: str) -> Result:
        """A call about our own configuration, by an operator on ``node``."""
        if self.configuring is None:
            raise unavailable("this master has no configuration that it could show or change")
        return self.configuring.answer(asked, node)

    def wake(self) -> None:
        """Have a round run as soon as one may: something is due."""
        self.cluster.changed = True
        self._plan_round()

    async def listen(self, host: str, port: int) -> None:
        """Open the port, with TLS where there are :attr:`contexts`; :attr:`address` tells which it was.

        Raises:
            OSError: the port is taken.
        """
        context = self.contexts.current if self.contexts is not None else None
        self._port = Listener(lambda: RpcPeer(AgentConnection(self)), context, _refused)
        await self._port.listen(host, port)
        self.address = self._port.address
        self._watch_nodes()

    async def close(self) -> None:
        """Close all connections; the agents keep their work and register again when there is a master."""
        for timer in (self._round, self._watch):
            if timer is not None:
                timer.cancel()
        if self._port is not None:
            self._port.close()
        for connection in list(self.connections):
            connection.close()
        if self._port is not None:
            await self._port.wait_closed()

    def judge_anew(self) -> None:
        """Whom the CA lets in may have changed: who was let in before shows it his certificate again."""
        for connection in list(self.connections):
            connection.judge_anew()

    # ------------------------------------------------------------ what connections say

    def register(self, connection: AgentConnection, message: api.Register) -> None:
        """Make this the node's connection.

        Raises:
            RpcError: another live connection has this name; or the message is at fault.
        """
        now = time.monotonic()
        other = self._by_node.get(message.node)
        if other is not None and now - other.heard_at <= 2 * self.cluster.settings.heartbeat_s:
            raise refused(
                f"node {message.node!r} is connected from {other.address}",
                field="node",
                remedy="give every host its own `node` name",
            )
        instructions = self.cluster.handle(e.Said(message.node, message), now)
        connection.node, connection.heard_at = message.node, now
        self._by_node[message.node] = connection
        if other is not None:
            other.hang_up(f"silent, and {connection.address} registered under the same name")
        self._carry_out(instructions)

    def said_by(self, connection: AgentConnection, event: e.Said | e.Answered) -> None:
        """An event of the node's present connection; one of a former connection is out of date.

        Raises:
            RpcError: the message is at fault.
        """
        if self._by_node.get(connection.node) is connection:
            if self.overview is not None:
                self.overview.heard(event, time.time())
            self._dispatch(event)

    def gone(self, connection: AgentConnection) -> None:
        """A connection ended."""
        self.connections.discard(connection)
        if self._by_node.get(connection.node) is connection:
            del self._by_node[connection.node]
            self._dispatch(e.NodeAway(connection.node))

    def heard(self, event: e.Forecasted | e.Learnt | e.Remembered) -> None:
        """What was done in the background is known."""
        self._dispatch(event)

    def reconfigure(self, settings: MasterSettings) -> None:
        """Other settings from now on."""
        self._dispatch(e.Reconfigured(settings))

    # ------------------------------------------------------------ decisions

    def _dispatch(self, event: e.Event) -> None:
        self._carry_out(self.cluster.handle(event, time.monotonic()))

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case SendDecisions(node):
                    connection = self._by_node.get(node)
                    if connection is not None:
                        connection.send(instruction)
                case Hangup(node, reason):
                    connection = self._by_node.pop(node, None)
                    if connection is not None:
                        connection.hang_up(reason)
                case Predict() | StoreRun():
                    self._in_background(instruction)
                case Keep() if self.remembering is not None:
                    self.remembering.keep(instruction)
                case Explain(what, facts):
                    log.info(what, **facts)
        self._plan_round()

    def _in_background(self, instruction: Predict | StoreRun) -> None:
        if self.forecasting is not None:
            self.forecasting.ask(instruction)
        elif isinstance(instruction, Predict):
            slot_s = self.cluster.settings.executor_slot_s
            self._loop.call_soon(self.heard, unforeseen(instruction, ForecastSettings(slot_s)))

    def _plan_round(self) -> None:
        if self._round is None and self.cluster.wants_round:
            due = self._last_round + self.cluster.settings.interval_s
            self._round = self._loop.call_later(max(0.0, due - time.monotonic()), self._run_round)

    def _run_round(self) -> None:
        self._round = None
        self._last_round = time.monotonic()
        rounds = self.cluster.counts["rounds"]
        try:
            self._dispatch(e.RoundDue(time.time()))
        except Exception as error:  # the root of a round: agents are served whatever one round meets
            log.error("a round failed", exc_info=error)
        if self.cluster.counts["rounds"] > rounds:  # there was something to place
            self._round_seconds.observe(time.monotonic() - self._last_round)

    def _silence_s(self) -> float:
        now = time.monotonic()
        return max((now - connection.heard_at for connection in self._by_node.values()), default=0.0)

    def _watch_nodes(self) -> None:
        """Nodes fall silent without an event: look once per heartbeat, also when there is nothing to place."""
        self._watch = self._loop.call_later(self.cluster.settings.heartbeat_s, self._watch_nodes)
        if self._round is None:
            self._run_round()


def _refused(address: str, error: Exception) -> None:
    """A connection that never was one."""
    log.warning("no connection", address=address, why=tls.why(error, "the agent"))
