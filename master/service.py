"""The RPC server: agents connect, register, report and relay; the cluster's decisions go back to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog
from prometheus_client import CollectorRegistry, Gauge, Histogram

from master import drains, jobs
from master.connection import AgentConnection
from master.core import Cluster, MasterSettings
from master.core import events as e
from master.core.instructions import EndHeard, Explain, Hangup, Instruction, Keep, Predict, SendDecisions, StoreRun
from master.forecasting import Forecasting, unforeseen
from master.overview import Overview
from master.prediction.application import ForecastSettings
from master.remembering import Remembering
from penstock.config.answers import Configuring
from penstock.config.endpoint import Endpoint, UnixEndpoint
from penstock.security import tls
from penstock.transport import Listener, RpcPeer
from penstock.wire import master_api as api
from penstock.wire.agent_api import Result
from penstock.wire.errors import refused, unavailable
from penstock.wire.jobs_api import JobsOrdered
from penstock.wire.reservation_api import OnBehalf

log = structlog.get_logger()
#: Refusals of a taken name that are remembered, so that each is logged once.
_TAKEN_NAMES_MAX = 1000


class MasterService:
    """Feeds the cluster's core and carries out what it says; runs rounds when there is something to place."""

    def __init__(self, cluster: Cluster, registry: CollectorRegistry) -> None:
        self.cluster = cluster
        self.connections: set[AgentConnection] = set()
        self._by_node: dict[str, AgentConnection] = {}
        self._taken_names: set[tuple[str, str]] = set()  # (node, host) of refusals that were logged
        self._unheard: dict[tuple[str, str], asyncio.Future[None]] = {}  # ends of commands, until origins know them
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
        """A call about jobs, in its turn, too. What was put first by hand is written down before that is said."""
        said = jobs.answer(self.cluster, self._dispatch, asked, time.monotonic())
        if isinstance(said, JobsOrdered) and self.remembering is not None:
            await self.remembering.written()
        return said

    async def of_configuration(self, asked: OnBehalf, node: str) -> Result:
        """A call about our own configuration, by an operator on ``node``."""
        if self.configuring is None:
            raise unavailable("this master has no configuration that it could show or change")
        return self.configuring.answer(asked, node)

    def wake(self) -> None:
        """Have a round run as soon as one may: something is due."""
        self.cluster.changed = True
        self._plan_round()

    async def listen(self, place: Endpoint) -> None:
        """Open the socket for agents; a TCP port needs :attr:`contexts`. :attr:`address` tells which port was chosen.

        Raises:
            OSError: the port or path is taken.
        """
        self._port = Listener(lambda: RpcPeer(AgentConnection(self), unparsed=True), _refused)
        if isinstance(place, UnixEndpoint):
            self._port.listen_unix(place.path)
        else:
            assert self.contexts is not None, "penstock.security.doors refuses TCP without TLS"
            await self._port.listen_tcp(place.host, place.port, self.contexts.current)
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
            self._log_taken_name(message.node, connection, other)
            raise refused(
                f"node {message.node!r} is connected from {other.address}",
                field="node",
                remedy="give every host its own `node` name",
            )
        self._taken_names.discard((message.node, connection.host))
        instructions = self.cluster.handle(e.Said(message.node, message), now)
        connection.node, connection.heard_at = message.node, now
        self._by_node[message.node] = connection
        if other is not None:
            other.hang_up(f"silent, and {connection.address} registered under the same name")
        self._carry_out(instructions)

    def _log_taken_name(self, node: str, newcomer: AgentConnection, holder: AgentConnection) -> None:
        """Log the refusal once for each host that asks: its agent asks again every second or two."""
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

    async def end_heard(self, said: api.CommandEnded) -> None:
        """Until its origin has heard how a command ended: the node repeats it to the next master if this one ends."""
        key = (said.job, said.task)
        if self.cluster.untold(key):
            await asyncio.shield(self._unheard.setdefault(key, self._loop.create_future()))

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
                case EndHeard(job, task):
                    waiting = self._unheard.pop((job, task), None)
                    if waiting is not None:
                        waiting.set_result(None)
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
