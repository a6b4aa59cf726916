"""Random jobs on random clusters, through the cores of master and agents: all is done, nothing is over-committed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from master.core import MasterSettings
from master.core import events as m
from master.core.invariants import broken
from penstock.model import KINDS, Capacity, ResourceKind
from simulator import (
    NodeSpec,
    SimulatedCluster,
    SimulatedJob,
    SimulatedMonotask,
    SimulatedStage,
    SimulatedTask,
)

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
    """Looks at everything after every event at the master."""

    def _to_master(self, event: m.Event) -> None:
        super()._to_master(event)
        assert broken(self._master) == []
        for name, node in self._nodes.items():
            promised = sum(held.request.memory_bytes for held in node.held)
            assert promised <= self._specs[name].capacity.memory_bytes
            if name in self._master.nodes:
                assert self._master.nodes[name].memory_free_bytes() >= 0


@given(clusters(), workloads(), st.sampled_from(["ejf", "fifo"]), st.sampled_from([0.0001, 0.01, 0.2]))
@settings(max_examples=40, deadline=None)
def test_all_work_is_done_no_faster_than_it_can_be_and_nothing_is_refused(
    nodes: list[NodeSpec], jobs: list[SimulatedJob], ordering: str, latency_s: float
) -> None:
    policy = MasterSettings(ordering=ordering)
    run = Checked(nodes, policy, latency_s=latency_s)
    result = run.run(jobs, limit_s=3000.0)
    everything = [task for job in jobs for stage in job.stages for task in stage.tasks]
    assert len(result.placed_on) == len(everything)
    assert run._master.counts["assigned"] == len(everything)
    assert run._master.counts["refused"] == 0, "nothing else runs there, so nothing has to be refused"
    for kind in KINDS:
        slots = [(run._specs[name].capacity.slots(kind), run.slot_rate(name, kind)) for name in run.names]
        total = sum(task.usage().of(kind) for task in everything)
        assert result.makespan_s >= total / sum(count * rate for count, rate in slots) - 1e-9
        assert 0 <= result.scheduling_efficiency[kind.value] <= 1 + 1e-9
    assert SimulatedCluster(nodes, policy, latency_s=latency_s).run(jobs, limit_s=3000.0) == result
