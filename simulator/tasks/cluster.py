"""The simulated cluster: agents' cores, the master's core and the messages between them, on a clock that jumps.

The daemons' shells use sockets and timers; here a heap of events takes their place. Every decision is production code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agent.core import Node
from agent.core import events as e
from agent.core import instructions as i
from agent.core.confinement import Promise
from agent.core.settings import NodeSettings
from agent.core.tasks import unplaced
from master.core import Cluster, MasterSettings
from master.core import events as m
from master.core.instructions import Explain, Predict, SendDecisions, StoreRun
from master.prediction.application import ForecastSettings
from penstock.model import Capacity
from penstock.wire import master_api as api
from penstock.wire.agent_api import Notice, Params
from simulator.tasks.clock import Clock
from simulator.tasks.commands import Commands, Tally
from simulator.tasks.first_come import FirstComeQueues
from simulator.tasks.forecasts import Forecasts
from simulator.tasks.framework import Framework, Site
from simulator.tasks.machine import Machine
from simulator.tasks.node_spec import NodeSpec, capacity_of
from simulator.tasks.reservations import Reservations, ReservationSettings
from simulator.tasks.usage import Usage
from simulator.tasks.workload import SimulatedCommand, SimulatedJob

#: As in agent/master_link.py: ends within this time go into one heartbeat.
COALESCE_S = 0.05


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The environment of the daemons. ``agent`` is every node's settings except name and capacity.

    A message between agent and master takes ``latency_s``; the launcher takes ``start_s`` to start a command. The
    monitor samples every ``sample_s`` and reads memory every ``look_s`` in between (0: never). Frameworks report
    progress at most every ``progress_s`` (0: never). ``timeline_s`` is the step of the report's timeline. With
    ``fifo_queues`` agents grant monotasks in the order of their arrival.
    """

    latency_s: float = 0.001
    start_s: float = 0.0
    sample_s: float = 1.0
    look_s: float = 0.05
    progress_s: float = 1.0
    timeline_s: float = 0.0
    fifo_queues: bool = False
    agent: NodeSettings = field(
        default_factory=lambda: NodeSettings("", "", Capacity(cores=1.0, memory_bytes=0), has_master=True, ranked=True)
    )


class SimulatedCluster:
    """A cluster that :meth:`run` runs a workload on, once."""

    def __init__(
        self,
        nodes: Sequence[NodeSpec],
        settings: MasterSettings,
        surroundings: Surroundings | None = None,
        reservations: ReservationSettings | None = None,
    ) -> None:
        """Without ``reservations`` no job reserves."""
        self.clock = Clock()
        self.tally = Tally()
        self.acts: Counter[str] = Counter()  # what the daemons would log, by event
        self.surroundings = around = surroundings or Surroundings()
        self.names = [f"n{number}" for number in range(len(nodes))]
        self.usage = Usage(capacity_of(nodes), around.timeline_s)
        self.machines = {
            name: Machine(self.clock, spec, self.usage) for name, spec in zip(self.names, nodes, strict=True)
        }
        self.master = Cluster(settings)
        self.nodes = {name: self._node(self._settings_of(name)) for name in self.names}
        self.frameworks: list[Framework] = []
        self._commands = {name: self._commands_of(name) for name in self.names}
        self._left = 0
        self._heartbeat_due: set[str] = set()
        self._round_due = False
        self.forecasts = Forecasts(ForecastSettings(settings.executor_slot_s, settings.executor_horizon_slots))
        self.reservations: Reservations | None = None
        if reservations is not None:
            capacities = [spec.capacity for spec in nodes]
            self.reservations = Reservations(reservations, self.clock, self.master, capacities, self._wake)

    def run(self, jobs: Sequence[SimulatedJob], *, limit_s: float = 1e6) -> None:
        """Run until every job has ended; the results are in ``frameworks``, ``usage`` and ``tally``.

        Raises:
            ValueError: a job did not end within ``limit_s`` of simulated time.
        """
        heartbeat_s = self.master.settings.heartbeat_s
        for number, name in enumerate(self.names):
            self._register(name)
            self.clock.after(heartbeat_s * (number + 1) / len(self.names), self._beat, name)
        site = Site(
            self.clock,
            self.machines,
            self.usage,
            self.reservations,
            self.ask,
            self._job_ended,
            self.surroundings.progress_s,
        )
        for number, job in enumerate(jobs, start=1):
            framework = Framework(site, job, number)
            self.frameworks.append(framework)
            self.clock.after(job.submitted_at_s, framework.start)
        self._left = len(jobs)
        if not self.clock.run(lambda: not self._left, limit_s):
            waiting = [f.job.name for f in self.frameworks if f.ended_at_s is None]
            named = ", ".join(waiting[:8]) + (f" and {len(waiting) - 8} more" if len(waiting) > 8 else "")
            raise ValueError(f"after {limit_s:g} s of simulated time these jobs have not ended: {named}")

    # ------------------------------------------------------------ agents

    def _settings_of(self, name: str) -> NodeSettings:
        spec = self.machines[name].spec
        return replace(
            self.surroundings.agent,
            node=name,
            instance="sim",
            capacity=spec.capacity,
            has_master=True,
            disk_bytes_per_s=round(spec.disk_bytes_per_s * spec.capacity.disk_slots),
        )

    def _node(self, settings: NodeSettings) -> Node:
        return Node(settings, FirstComeQueues(settings) if self.surroundings.fifo_queues else None)

    def _commands_of(self, name: str) -> Commands:
        around = self.surroundings
        return Commands(
            self.clock,
            self.machines[name],
            lambda event: self.ask(name, event),
            self._find,
            lambda container: self._promise_of(name, container),
            self.usage,
            self.tally,
            start_s=around.start_s,
            sample_s=around.sample_s,
            look_s=around.look_s,
        )

    def _find(self, name: str) -> SimulatedCommand:
        number, _, task = name.partition("/")
        return self.frameworks[int(number) - 1].command(task)

    def _promise_of(self, node: str, container: str) -> Promise | None:
        record = self.nodes[node].containers.live.get(container)
        return record.promise if record is not None else None

    def _job_ended(self) -> None:
        self._left -= 1

    def ask(self, node: str, event: e.Event) -> object:
        """Give an event to an agent's core, carry out its instructions, and return its reply."""
        reply: object = None
        for instruction in self.nodes[node].handle(event, self.clock.now_s):
            match instruction:
                case i.Reply(result):
                    reply = result
                case i.Grant(session, grants):
                    self._notify(node, session, grants)
                case i.Notify(session, params):
                    self._notify(node, session, params)
                case i.SendToMaster(params):
                    self._send_to_master(node, params)
                case i.Explain(what):
                    self.acts[what] += 1
                case i.Record():
                    pass
                case _:
                    if not self._commands[node].carry_out(instruction):
                        raise NotImplementedError(f"not simulated: {instruction}")
        return reply

    def _notify(self, node: str, session: int, params: Notice) -> None:
        self.clock.soon(self.frameworks[session - 1].notified, node, params)

    # ------------------------------------------------------------ between agents and master

    def _register(self, name: str) -> None:
        node = self.nodes[name]
        node.executors.surrogate.gaps_read = node.executors.surrogate.last_parts_read = True  # as this master does
        here = [job for job in node.jobs.values() if job.record.here]
        self._to_master(
            m.Received(
                name,
                api.Register(
                    protocol=api.PROTOCOL,
                    node=name,
                    version="simulated",
                    capacity=node.settings.capacity,
                    load=node.load(self.clock.now_s),
                    t_alloc=node.settings.t_alloc,
                    jobs=node.client_jobs.states(),
                    ready=[tasks for job in here for tasks in unplaced(job)],
                    placed=node.held.report(),
                ),
            )
        )

    def _send_to_master(self, name: str, params: Params) -> None:
        assert isinstance(params, m.Message)
        self.clock.after(self.surroundings.latency_s, self._to_master, m.Received(name, params))
        self._heartbeat_soon(name)

    def _heartbeat_soon(self, name: str) -> None:
        if name not in self._heartbeat_due:
            self._heartbeat_due.add(name)
            self.clock.after(COALESCE_S, self._heartbeat, name)

    def _heartbeat(self, name: str) -> None:
        self._heartbeat_due.discard(name)
        node = self.nodes[name]
        beat = node.heartbeat(self.clock.now_s)
        self.clock.after(self.surroundings.latency_s, self._to_master, m.Received(name, beat))

    def _beat(self, name: str) -> None:
        self._heartbeat(name)
        self.clock.after(self.master.settings.heartbeat_s, self._beat, name)

    def _to_master(self, event: m.Event) -> None:
        for instruction in self.master.handle(event, self.clock.now_s):
            match instruction:
                case SendDecisions():
                    self.clock.after(self.surroundings.latency_s, self._decide, instruction)
                case Predict() | StoreRun():
                    answer = self.forecasts.answer(instruction, self.clock.now_s)
                    self.clock.soon(self._to_master, answer)
                case Explain(what):
                    self.acts[what] += 1
        self._plan_round()

    def _plan_round(self) -> None:
        if not self._round_due and self.master.wants_round:
            self._round_due = True
            self.clock.after(self.master.settings.interval_s, self._round)

    def _wake(self) -> None:
        """Plan a round as soon as allowed, because a reservation's turn is due."""
        self.master.want_round()
        self._plan_round()

    def _round(self) -> None:
        self._round_due = False
        self._to_master(m.RoundDue(self.clock.now_s))

    def _decide(self, sent: SendDecisions) -> None:
        answer = self.ask(sent.node, e.Decided(sent.number, sent.decisions, self.clock.now_s))
        assert isinstance(answer, api.Decided)
        self._heartbeat_soon(sent.node)
        answered = m.Answered(sent.node, sent.number, answer.refused, answer.places_known)
        self.clock.after(self.surroundings.latency_s, self._to_master, answered)
