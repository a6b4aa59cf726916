"""Random jobs on random clusters, through the cores of master and agents: all is done, nothing is over-committed."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core import events as e
from agent.core.settings import NodeSettings
from agent.queues.resource import MOST_AHEAD_IO
from master.core import MasterSettings
from master.core import events as m
from master.ordering import NAMES
from penstock.model import KINDS, Capacity, ResourceKind
from penstock.model.work import Opportunistic
from simulator.tasks.cluster import SimulatedCluster, Surroundings
from simulator.tasks.measure import report
from simulator.tasks.node_spec import NodeSpec
from simulator.tasks.workload import (
    Phase,
    SimulatedCommand,
    SimulatedJob,
    SimulatedMonotask,
    SimulatedStage,
    SimulatedTask,
)
from tests.master_invariants import broken

MB = 10**6
MEMORY = 1000 * MB

monotasks = st.builds(SimulatedMonotask, st.sampled_from(list(ResourceKind)), st.integers(0, 40 * MB))


@st.composite
def clusters(draw: st.DrawFn) -> list[NodeSpec]:
    specs = []
    for _ in range(draw(st.integers(1, 4))):
        capacity = Capacity(
            cores=float(draw(st.integers(1, 4))),
            memory_bytes=MEMORY + draw(st.integers(0, MEMORY)),
            disk_slots=draw(st.integers(1, 2)),
            network_slots=draw(st.integers(1, 4)),
        )
        speeds = [draw(st.floats(5.0 * MB, 50.0 * MB)) for _ in KINDS]
        specs.append(NodeSpec(capacity, *speeds))
    return specs


@st.composite
def workloads(draw: st.DrawFn) -> list[SimulatedJob]:
    jobs = []
    for index in range(draw(st.integers(1, 4))):
        stages: list[SimulatedStage] = []
        for number in range(draw(st.integers(1, 3))):
            before = tuple(stage.name for stage in stages if draw(st.booleans()))
            chains = draw(st.lists(st.lists(monotasks, min_size=1, max_size=3), min_size=1, max_size=5))
            tasks = tuple(
                SimulatedTask(f"{number}/{i}", tuple(chain), draw(st.integers(0, MEMORY)))
                for i, chain in enumerate(chains)
            )
            stages.append(SimulatedStage(f"s{number}", tasks, before))
        at_s, memory = draw(st.floats(0, 5)), draw(st.integers(0, MEMORY))
        jobs.append(SimulatedJob(f"j{index}", at_s, tuple(stages), memory))
    return jobs


class Checked(SimulatedCluster):
    """Looks at everything after every event at the master, and at the slots after every event at an agent."""

    def _to_master(self, event: m.Event) -> None:
        super()._to_master(event)
        assert broken(self.master) == []
        for name, node in self.nodes.items():
            promised = sum(held.request.memory_bytes for held in node.held if not held.opportunistic)
            assert promised <= self.machines[name].spec.capacity.memory_bytes
            if name in self.master.nodes:
                assert self.master.nodes[name].memory_free_bytes() >= 0

    def ask(self, node: str, event: e.Event) -> object:
        reply = super().ask(node, event)
        capacity = self.machines[node].spec.capacity
        for kind in KINDS:
            # A job ahead passes slots of disks and the network that jobs behind hold. All work here is of frameworks:
            # none of it runs on more processors than there are slots.
            most = 1 if kind is ResourceKind.CPU else MOST_AHEAD_IO
            assert self.nodes[node].queues.counts(kind, 0.0).running <= most * capacity.slots(kind)
        held, settings = self.nodes[node].held, self.nodes[node].settings
        assert len(held.waiting) <= settings.opportunistic_queue
        assert held.waiting.keys() <= held.by_key.keys()
        ledger = self.nodes[node].ledger()
        assert ledger.promised_cores <= capacity.cores + 1e-6
        return reply


def critical_path_s(job: SimulatedJob, spec: NodeSpec) -> float:
    """The least time of a job on nodes like this one: the longest chain of the stages' longest tasks."""
    rates = dict(zip(KINDS, (spec.cpu_bytes_per_s, spec.disk_bytes_per_s, spec.link_bytes_per_s), strict=True))
    ends_s: dict[str, float] = {}
    for stage in job.stages:
        longest_s = max(sum(part.input_bytes / rates[part.kind] for part in task.monotasks) for task in stage.tasks)
        ends_s[stage.name] = longest_s + max((ends_s[name] for name in stage.after), default=0.0)
    return max(ends_s.values())


@given(clusters(), workloads(), st.sampled_from(list(NAMES)), st.sampled_from([0.0001, 0.01, 0.2]))
@settings(max_examples=15)
def test_all_work_is_done_no_faster_than_it_can_be_and_nothing_is_refused(
    nodes: list[NodeSpec], jobs: list[SimulatedJob], ordering: str, latency_s: float
) -> None:
    policy, around = MasterSettings(ordering=ordering), Surroundings(latency_s=latency_s)
    run = Checked(nodes, policy, around)
    run.run(jobs, limit_s=3000.0)
    result = report(run, {})
    everything = [task for job in jobs for stage in job.stages for task in stage.tasks]
    assert result.measures["tasks"] == len(everything)
    assert run.master.counts["assigned"] == len(everything)
    assert run.master.counts["refused"] == 0, "nothing else runs there, so nothing has to be refused"
    speeds = {
        ResourceKind.CPU: [node.capacity.cpu_slots * node.cpu_bytes_per_s for node in nodes],
        ResourceKind.DISK: [node.capacity.disk_slots * node.disk_bytes_per_s for node in nodes],
        ResourceKind.NETWORK: [node.link_bytes_per_s for node in nodes],
    }
    for kind in KINDS:
        total = sum(task.usage().of(kind) for task in everything)
        assert result.makespan_s >= total / sum(speeds[kind]) - 1e-6
        if kind is ResourceKind.NETWORK:
            carried = run.usage.used["network"].integral
            assert carried == pytest.approx(total, rel=1e-6, abs=1e-3), "every byte is carried once"
    for resource in result.resources.values():
        assert 0 <= resource.utilization <= 1 + 1e-9
        assert 0 <= (resource.scheduling_efficiency or 0) <= 1 + 1e-9
    again = SimulatedCluster(nodes, policy, around)
    again.run(jobs, limit_s=3000.0)
    assert msgspec.json.encode(report(again, {})) == msgspec.json.encode(result), "same workload, same report"


@given(clusters(), workloads())
@settings(max_examples=15)
def test_a_job_alone_on_many_nodes_takes_its_critical_path_and_the_scheduling_latency(
    nodes: list[NodeSpec], jobs: list[SimulatedJob]
) -> None:
    """With a node for every task nothing waits but for placement: a round and a few messages for each stage."""
    spec, job = nodes[0], jobs[0]
    count = max(len(stage.tasks) for stage in job.stages) * len(job.stages)
    run = SimulatedCluster([spec] * count, MasterSettings())
    run.run([SimulatedJob(job.name, 0.0, job.stages, 0)], limit_s=3000.0)
    least_s = critical_path_s(job, spec)
    assert least_s - 1e-6 <= run.clock.now_s


commands = st.builds(
    lambda seconds, cores, used, memory, kind: SimulatedTask(
        "",
        (),
        0,
        SimulatedCommand(
            (Phase(seconds, min(cores, used), memory * 0.3), Phase(seconds, used, float(memory))),
            cores,
            memory,
            kind,
        ),
    ),
    st.floats(0.1, 8),
    st.sampled_from([0.25, 0.5, 1.0]),
    st.floats(0.0, 2.0),
    st.integers(MB, MEMORY // 2),
    st.sampled_from(list(ResourceKind)),
)


@given(
    st.lists(
        st.tuples(st.lists(commands, min_size=1, max_size=8), st.sampled_from([False, True, "only"])),
        min_size=1, max_size=3,
    ),
    st.floats(0.5, 1.0),
    st.integers(1, 3),
    st.sampled_from([(0, 10.0), (1, 0.5), (4, 2.0)]),
)  # fmt: skip
@settings(max_examples=15)
def test_all_commands_end_despite_any_preemption_and_no_promise_is_broken(
    shapes: list[tuple[list[SimulatedTask], Opportunistic]], t_alloc: float, count: int, queue: tuple[int, float]
) -> None:
    """Nor is anything lost that waits on a node for slack, and goes back when it has waited too long."""
    jobs = []
    for number, (drawn, opportunistic) in enumerate(shapes):
        tasks = tuple(SimulatedTask(f"t{i}", (), 0, task.command) for i, task in enumerate(drawn))
        jobs.append(SimulatedJob(f"j{number}", number * 0.7, (SimulatedStage("s", tasks, (), opportunistic),)))
    spec = NodeSpec(Capacity(cores=2.0, memory_bytes=MEMORY))
    places, wait_s = queue
    agent = NodeSettings(
        "", "", spec.capacity, t_alloc=t_alloc, opportunistic_queue=places, opportunistic_wait_s=wait_s
    )
    around = Surroundings(agent=agent)
    runs = []
    for kind in (Checked, SimulatedCluster):
        run = kind([spec] * count, MasterSettings(), around)
        run.run(jobs, limit_s=3000.0)
        runs.append(report(run, {}))
    asked = sum(len(drawn) for drawn, _ in shapes)
    assert runs[0].measures["tasks"] == asked
    assert runs[0].measures["containers"] == asked + runs[0].preemptions
    assert msgspec.json.encode(runs[0]) == msgspec.json.encode(runs[1])
