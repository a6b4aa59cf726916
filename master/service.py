"""The RPC server: agents connect, register, report and relay; the cluster's decisions are sent to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Gauge, Histogram

from master import drains, jobs
from master.connection import AgentConnection, Relayed
from master.core import Cluster, MasterSettings
from master.core import events as e
from master.core.dues import BEHIND_S
from master.core.instructions import (
    AcknowledgeEnd,
    Explain,
    Hangup,
    Instruction,
    Keep,
    Predict,
    SendDecisions,
    StoreRun,
)
from master.explain.why import JobExplainer
from master.forecaster import Forecaster
from master.overview import Overview
from master.state_writer import StateWriter
from penstock.config import calls
from penstock.config.endpoint import Endpoint, UnixEndpoint
from penstock.config.live_config import LiveConfig
from penstock.security import tls
from penstock.ticks import BETWEEN, next_tick_s
from penstock.transport import Listener, RpcPeer
from penstock.wire import master_api as api
from penstock.wire import relayed_methods as relays
from penstock.wire.agent_api import Result
from penstock.wire.connection import LINK_FRAME_BYTES, RpcConnection
from penstock.wire.errors import refused, unavailable
from penstock.wire.jobs_api import JobsOrdered
from penstock.wire.reservation_api import OnBehalf

log = structlog.get_logger()
#: Number of stored refusals of a taken name, each of which is logged once.
_TAKEN_NAMES_MAX = 1000
#: Registrations delay a round by at most this time: agents that register again and again must not stop all rounds.
_BEHIND_MAX_S = 0.2


class MasterService:
    """Feeds the cluster's core and carries out its instructions; runs rounds when there is work to place.

    The daemon sets the public attributes before :meth:`listen`.
    """

    #: Answers forecasts, and stores executors' runs.
    forecaster: Forecaster
    #: Stores the state for the next master.
    state_writer: StateWriter
    #: Shows the cluster to users who ask through their host's agent.
    overview: Overview
    #: The configuration that operators see and set.
    live_config: LiveConfig[Any]
    #: TLS contexts of the port.
    contexts: tls.Contexts | None = None
    #: Answers calls about reservations; none are accepted until it is set.
    reservations: Callable[[OnBehalf], Awaitable[Result]] | None = None

    def __init__(self, cluster: Cluster, registry: CollectorRegistry) -> None:
        self.cluster = cluster
        self.explainer = JobExplainer.of(cluster)
        self._connections: set[AgentConnection] = set()
        self._by_node: dict[str, AgentConnection] = {}
        self._taken_names: set[tuple[str, str]] = set()  # (node, host) of logged refusals
        # ends of commands that origins have not confirmed
        self._unacknowledged: dict[tuple[str, str], asyncio.Future[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._round: asyncio.TimerHandle | None = None
        self._round_due_s = 0.0  # when its interval is over
        self._held_until_s = 0.0  # it may wait longer, for what follows a registration
        self._watch: asyncio.Handle | None = None
        self._watch_due_s = 0.0  # loop time
        self._last_round = time.monotonic() - cluster.settings.interval_s
        self._last_placing_round = self._last_round
        self._round_by_s = time.monotonic()  # when the watch was due after the last round
        self._port: Listener | None = None
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

    async def on_behalf(self, asked: OnBehalf) -> Result:
        """Answer a call about reservations.

        Raises: RpcError: the answer; ``unavailable`` where reservations are not served.
        """
        if self.reservations is None:
            raise unavailable("this master takes no reservations", remedy="see its log: its store could not be opened")
        return await self.reservations(asked)

    async def of_cluster(self, asked: OnBehalf) -> Result:
        """Return the part of the cluster's state visible to this user."""
        return self.overview.answer(asked)

    async def of_nodes(self, asked: OnBehalf) -> Result:
        """Answer a call about drained nodes; a coroutine, so that it is answered in order."""
        said = drains.answer(self.cluster.drain, asked, self.dispatch, time.time())
        await self.state_writer.written()
        return said

    async def of_jobs(self, asked: OnBehalf) -> Result:
        """Answer a call about jobs, also in order. An order by hand is stored before it is confirmed."""
        said = jobs.answer(
            self.cluster.listing, self.explainer, self.cluster.nodes, self.dispatch, asked, time.monotonic()
        )
        if isinstance(said, JobsOrdered):
            await self.state_writer.written()
        return said

    async def of_configuration(self, asked: OnBehalf, node: str) -> Result:
        """Answer a call about the master's configuration, by an operator on ``node``."""
        return calls.answer(self.live_config, asked, node)

    def wake(self) -> None:
        """Run a round as soon as allowed."""
        self.cluster.want_round()
        self._plan_round()

    async def listen(self, place: Endpoint) -> None:
        """Open the socket for agents; a TCP port needs :attr:`contexts`. :attr:`address` returns the chosen port.

        Raises: OSError: the port or path is taken.
        """
        answers: dict[relays.Relay, Relayed] = {
            relays.OF_RESERVATIONS: lambda asked, node: self.on_behalf(asked),
            relays.OF_CLUSTER: lambda asked, node: self.of_cluster(asked),
            relays.OF_CONFIGURATION: self.of_configuration,
            relays.OF_NODES: lambda asked, node: self.of_nodes(asked),
            relays.OF_JOBS: lambda asked, node: self.of_jobs(asked),
        }
        relayed = {relay.name: answers[relay] for relay in relays.RELAYS}
        self._port = Listener(
            lambda: RpcPeer(AgentConnection(self, relayed), RpcConnection(LINK_FRAME_BYTES)), _refused
        )
        if isinstance(place, UnixEndpoint):
            self._port.listen_unix(place.path)
        else:
            assert self.contexts is not None, "penstock.security.doors refuses TCP without TLS"
            await self._port.listen_tcp(place.host, place.port, self.contexts.current)
        self.address = self._port.address
        self._round_by_s = time.monotonic()  # the start was no stall
        self._watch_nodes()

    async def close(self) -> None:
        """Close all connections; the agents keep their work and register again with the next master."""
        for timer in (self._round, self._watch):
            if timer is not None:
                timer.cancel()
        if self._port is not None:
            self._port.close()
        for connection in list(self._connections):
            connection.close()
        if self._port is not None:
            await self._port.wait_closed()

    def check_certificates(self) -> None:
        """Check all connections against the present CA and its list."""
        for connection in list(self._connections):
            connection.check_certificates(self.contexts)

    # ------------------------------------------------------------ messages of connections

    def connected(self, connection: AgentConnection) -> None:
        """Keep a new connection, unless the CA has changed since its handshake began."""
        self._connections.add(connection)
        connection.check_certificates(self.contexts)

    def register(self, connection: AgentConnection, message: api.Register) -> MasterSettings:
        """Make this the node's connection; return the settings in force.

        Raises: RpcError: another live connection has this name; or the message is invalid.
        """
        now = time.monotonic()
        other = self._by_node.get(message.node)
        if other is not None and now - other.heard_at <= 2 * self.cluster.settings.heartbeat_s:
            self._log_taken_name(message.node, connection, other)
            raise refused(
                f"node {message.node!r} is connected from {other.address}",
                field="node",
                remedy="give every host its own `node` name",
            )
        self._taken_names.discard((message.node, connection.host))
        instructions = self.cluster.handle(e.Received(message.node, message), now)
        connection.node, connection.heard_at = message.node, now
        self._by_node[message.node] = connection
        if other is not None:
            other.hang_up(f"silent, and {connection.address} registered under the same name")
        self._carry_out(instructions, wait_s=BEHIND_S)
        return self.cluster.settings

    def reconfigure(self, settings: MasterSettings) -> None:
        """Apply new settings. Tell the agents the configured tenants if these have changed."""
        before = self.cluster.settings.configured_tenants()
        self.dispatch(e.Reconfigured(settings))
        tenants = self.cluster.settings.configured_tenants()
        if tenants != before:
            for connection in self._by_node.values():  # behind those that came with its registration
                self._loop.call_soon(connection.name_tenants, tenants)

    def _log_taken_name(self, node: str, newcomer: AgentConnection, holder: AgentConnection) -> None:
        """Log the refusal once per host, because its agent retries every second or two."""
        if (node, newcomer.host) in self._taken_names:
            return
        if len(self._taken_names) < _TAKEN_NAMES_MAX:
            self._taken_names.add((node, newcomer.host))
        log.warning(
            "a node was refused: its name is taken",
            node=node,
            address=newcomer.address,
            holder=holder.address,
            remedy="give every host its own `node` name",
        )

    def received(self, connection: AgentConnection, event: e.Received | e.Answered) -> None:
        """Handle an event of the node's present connection; ignore those of former connections.

        Raises: RpcError: the message is invalid.
        """
        if self._by_node.get(connection.node) is connection:
            self.overview.received(event, time.time())
            self.dispatch(event)

    def gone(self, connection: AgentConnection) -> None:
        """Handle the end of a connection."""
        self._connections.discard(connection)
        if self._by_node.get(connection.node) is connection:
            del self._by_node[connection.node]
            self.dispatch(e.NodeAway(connection.node))

    async def end_acknowledged(self, said: api.CommandEnded) -> None:
        """Wait until the origin has confirmed a command's end; otherwise the node repeats it to the next master."""
        key = (said.job, said.task)
        if self.cluster.end_is_unconfirmed(key):
            await asyncio.shield(self._unacknowledged.setdefault(key, self._loop.create_future()))

    def joined(self, job: str) -> api.JobJoined:
        """Return the answer to an accepted request to join a job."""
        return self.cluster.joined(job)

    # ------------------------------------------------------------ decisions

    def dispatch(self, event: e.Event) -> None:
        """Handle an event, and carry out the decisions that follow from it.

        Raises: RpcError: the message is invalid.
        """
        self._carry_out(self.cluster.handle(event, time.monotonic()))

    def _carry_out(self, instructions: list[Instruction], wait_s: float = 0.0) -> None:
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
                    self.forecaster.ask(instruction)
                case Keep():
                    self.state_writer.keep(instruction)
                case AcknowledgeEnd(job, task):
                    waiting = self._unacknowledged.pop((job, task), None)
                    if waiting is not None:
                        waiting.set_result(None)
                case Explain(what, facts):
                    log.info(what, **facts)
        self._plan_round(wait_s)

    def _plan_round(self, wait_s: float = 0.0) -> None:
        """Set the timer of a wanted round: ``interval_s`` after the last one like it, and ``wait_s`` from now or later.

        A round without a task to place must not delay the tasks of the job that it is for, which come some milliseconds
        behind the job: it waits for them, and they hasten it.
        """
        if self._round is None and not self.cluster.wants_round:
            return
        now, interval_s = time.monotonic(), self.cluster.settings.interval_s
        if self.cluster.dues.changed and self.cluster.members.ready_tasks > 0:  # one may fit only now
            due_s = max(now, self._last_placing_round + interval_s)
        else:
            due_s = max(now + BEHIND_S, min(self._last_round + interval_s, self.cluster.dues.order_due))
        if self._round is not None:
            if due_s >= self._round_due_s and not wait_s:
                return
            due_s = min(due_s, self._round_due_s)
            self._round.cancel()
        self._round_due_s = due_s
        if wait_s:
            self._held_until_s = min(now + wait_s, due_s + _BEHIND_MAX_S)
        self._round = self._loop.call_later(max(0.0, due_s - now, self._held_until_s - now), self._run_round)

    def _run_round(self) -> None:
        self._round, self._held_until_s = None, 0.0
        now, settings, rounds = time.monotonic(), self.cluster.settings, self.cluster.counts["rounds"]
        late_s = now - self._round_by_s - settings.interval_s
        self._last_round, self._round_by_s = now, max(now, self._watch_due_s)
        if self.cluster.members.ready_tasks > 0:  # it looks at all of them, and may take long
            self._last_placing_round = now
        try:
            self.dispatch(e.RoundDue(time.time(), stalled_s=max(0.0, late_s)))
        except Exception as error:  # the root of a round: no error may stop the service of agents
            log.error("a round failed", exc_info=error)
        if self.cluster.counts["rounds"] > rounds:  # there was work to place
            self._round_seconds.observe(time.monotonic() - self._last_round)

    def _silence_s(self) -> float:
        now = time.monotonic()
        return max((now - connection.heard_at for connection in self._by_node.values()), default=0.0)

    def _watch_nodes(self) -> None:
        """Watch for silent nodes, which cause no event: run a round once per heartbeat even without work to place."""
        self._watch_due_s = next_tick_s(self._loop.time(), self.cluster.settings.heartbeat_s, BETWEEN)
        self._watch = self._loop.call_at(self._watch_due_s, self._watch_last)
        if self._round is None:
            self._run_round()

    def _watch_last(self) -> None:
        """Go on after the other timers of this instant, so that the watch is no lag of the loop to them."""
        self._watch = self._loop.call_soon(self._watch_nodes)


def _refused(address: str, error: Exception) -> None:
    """Log a failed attempt to connect."""
    log.warning("no connection", address=address, why=tls.why(error, "the agent"))
