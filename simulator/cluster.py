"""The cluster: agents' cores, the master's core and the messages between them, on a clock that jumps between events.

What the daemons' shells do with sockets and timers is done here with a heap; every decision is production code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush

from agent.core import Node
from agent.core import events as e
from agent.core import instructions as i
from agent.core.settings import NodeSettings
from agent.core.tasks import unplaced
from master.core import Cluster, MasterSettings
from master.core import events as m
from master.core.instructions import SendDecisions
from penstock.model import KINDS, Capacity, ResourceKind
from penstock.wire import master_api as api
from penstock.wire.agent_api import Grants, Params
from simulator.framework import Framework
from simulator.results import Results
from simulator.workload import SimulatedJob

#: As agent/link.py: what ends within this time is told together.
COALESCE_S = 0.05


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node, and what one slot of each of its resources processes."""

    capacity: Capacity
    cpu_bytes_per_s: float = 50e6
    disk_bytes_per_s: float = 100e6
    network_bytes_per_s: float = 100e6


class SimulatedCluster:
    """Build it, :meth:`run` a workload, once."""

    def __init__(self, nodes: Sequence[NodeSpec], settings: MasterSettings, *, latency_s: float = 0.001) -> None:
        self.now_s = 0.0
        self.names = [f"n{number}" for number in range(len(nodes))]
        self.steps: dict[tuple[str, int], int] = {}
        self._specs = dict(zip(self.names, nodes, strict=True))
        self._latency_s = latency_s
        self._master = Cluster(settings)
        self._nodes = {
            name: Node(NodeSettings(node=name, instance="sim", capacity=spec.capacity, has_master=True))
            for name, spec in self._specs.items()
        }
        self._frameworks: list[Framework] = []
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._heartbeat_due: set[str] = set()
        self._round_due = False

    # ------------------------------------------------------------ the clock

    def fresh_number(self) -> int:
        """Rises by one."""
        self._number += 1
        return self._number

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something later; what is due at the same time happens in the order in which it was asked for."""
        heappush(self._queue, (self.now_s + seconds, self.fresh_number(), action))

    def run(self, jobs: Sequence[SimulatedJob], *, limit_s: float = 1e6) -> Results:
        """Until every job has ended.

        Raises:
            RuntimeError: something did not end within ``limit_s`` of simulated time.
        """
        for name in self.names:
            self._register(name)
            self.after(self._master.settings.heartbeat_s, partial(self._beat, name))
        for number, job in enumerate(jobs, start=1):
            framework = Framework(self, job, number)
            self._frameworks.append(framework)
            self.after(job.submitted_at_s, framework.start)
        while any(framework.ended_at_s is None for framework in self._frameworks):
            self.now_s, _, action = heappop(self._queue)
            if self.now_s > limit_s:
                waiting = [f.job.name for f in self._frameworks if f.ended_at_s is None]
                raise RuntimeError(f"after {limit_s:g} s these jobs have not ended: {', '.join(waiting)}")
            action()
        return self._results()

    # ------------------------------------------------------------ agents

    def slot_rate(self, node: str, kind: ResourceKind) -> float:
        """Bytes/s of one slot."""
        spec = self._specs[node]
        rates = (spec.cpu_bytes_per_s, spec.disk_bytes_per_s, spec.network_bytes_per_s)
        return rates[KINDS.index(kind)]

    def ask(self, node: str, event: e.Event) -> object:
        """Have an agent's core decide, and carry out what it says; its reply."""
        reply: object = None
        for instruction in self._nodes[node].handle(event, self.now_s):
            match instruction:
                case i.Reply(result):
                    reply = result
                case i.Grant(session, job, ids):
                    self._notify(node, session, "grant", Grants(job=job, ids=ids))
                case i.Notify(session, method, params):
                    self._notify(node, session, method, params)
                case i.TellMaster(_, params):
                    self._tell_master(node, params)
                case i.Record() | i.Explain():
                    pass
                case _:
                    raise NotImplementedError(f"commands are not simulated: {instruction}")
        return reply

    def _notify(self, node: str, session: int, method: str, params: Params) -> None:
        framework = self._frameworks[session - 1]
        self.after(0.0, lambda: framework.notified(node, method, params))

    # ------------------------------------------------------------ between agents and master

    def _register(self, name: str) -> None:
        node = self._nodes[name]
        here = [job for job in node.jobs.values() if job.record.here]
        self._to_master(
            m.Said(
                name,
                api.Register(
                    protocol=api.PROTOCOL,
                    node=name,
                    version="simulated",
                    capacity=node.settings.capacity,
                    load=node.load(self.now_s),
                    t_alloc=node.settings.t_alloc,
                    jobs=node.job_states(),
                    ready=[tasks for job in here for tasks in unplaced(job)],
                    placed=node.held.report(),
                ),
            )
        )

    def _tell_master(self, name: str, params: Params) -> None:
        assert isinstance(params, m.Message)
        self.after(self._latency_s, partial(self._to_master, m.Said(name, params)))
        self._heartbeat_soon(name)

    def _heartbeat_soon(self, name: str) -> None:
        if name not in self._heartbeat_due:
            self._heartbeat_due.add(name)
            self.after(COALESCE_S, partial(self._heartbeat, name))

    def _heartbeat(self, name: str) -> None:
        self._heartbeat_due.discard(name)
        node = self._nodes[name]
        beat = api.Heartbeat(load=node.load(self.now_s), decided=node.decided)
        self.after(self._latency_s, partial(self._to_master, m.Said(name, beat)))

    def _beat(self, name: str) -> None:
        self._heartbeat(name)
        self.after(self._master.settings.heartbeat_s, partial(self._beat, name))

    def _to_master(self, event: m.Event) -> None:
        for instruction in self._master.handle(event, self.now_s):
            if isinstance(instruction, SendDecisions):
                self.after(self._latency_s, partial(self._decide, instruction))
        if self._master.wants_round and not self._round_due:
            self._round_due = True
            self.after(self._master.settings.interval_s, self._round)

    def _round(self) -> None:
        self._round_due = False
        self._to_master(m.RoundDue(self.now_s))

    def _decide(self, sent: SendDecisions) -> None:
        answer = self.ask(sent.node, e.Decided(sent.number, sent.decisions))
        assert isinstance(answer, api.Decided)
        self._heartbeat_soon(sent.node)
        self.after(self._latency_s, partial(self._to_master, m.Answered(sent.node, sent.number, answer.refused)))

    # ------------------------------------------------------------ the end

    def _results(self) -> Results:
        completion_s: dict[str, float] = {}
        placed_on: dict[tuple[str, str], str] = {}
        for framework in self._frameworks:
            assert framework.ended_at_s is not None
            completion_s[framework.job.name] = framework.ended_at_s - framework.job.submitted_at_s
            placed_on |= {(framework.job.name, task): node for task, node in framework.placed_on.items()}
        first_s = min(framework.job.submitted_at_s for framework in self._frameworks)
        makespan_s = self.now_s - first_s
        efficiency: dict[str, float] = {}
        for kind in KINDS:
            granted_s = sum(node.queues.counts(kind, self.now_s)["slot_seconds"] for node in self._nodes.values())
            slots = sum(spec.capacity.slots(kind) for spec in self._specs.values())
            efficiency[kind.value] = granted_s / (slots * makespan_s)
        return Results(makespan_s, completion_s, efficiency, placed_on)
