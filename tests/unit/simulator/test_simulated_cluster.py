"""Agents' cores and the master's core together, as the simulator drives them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from master.core import MasterSettings
from penstock.model import Capacity, ResourceKind
from simulator import (
    NodeSpec,
    Results,
    SimulatedCluster,
    SimulatedJob,
    SimulatedMonotask,
    SimulatedStage,
    SimulatedTask,
)

MB = 10**6
GIB = 2**30
CPU, DISK, NETWORK = ResourceKind.CPU, ResourceKind.DISK, ResourceKind.NETWORK


def nodes(count: int, cores: int = 2, memory_bytes: int = GIB) -> list[NodeSpec]:
    return [NodeSpec(Capacity(cores=cores, memory_bytes=memory_bytes)) for _ in range(count)]


def task(name: str, *monotasks: tuple[ResourceKind, int], memory_bytes: int = 0) -> SimulatedTask:
    return SimulatedTask(name, tuple(SimulatedMonotask(kind, size) for kind, size in monotasks), memory_bytes)


def map_reduce(name: str, maps: int, reduces: int, size: int, submitted_at_s: float = 0.0) -> SimulatedJob:
    return SimulatedJob(
        name,
        submitted_at_s,
        (
            SimulatedStage("map", tuple(task(f"m{n}", (DISK, size), (CPU, size)) for n in range(maps))),
            SimulatedStage(
                "reduce", tuple(task(f"r{n}", (NETWORK, size), (CPU, size)) for n in range(reduces)), ("map",)
            ),
        ),
        memory_bytes=GIB // 4,
    )


def run(specs: list[NodeSpec], *jobs: SimulatedJob) -> Results:
    return SimulatedCluster(specs, MasterSettings()).run(jobs)


def test_one_task_takes_its_work_plus_the_scheduling_latency() -> None:
    """50 MB at 50 MB/s: a second; a round comes after 0.1 s, messages take 1 ms each."""
    job = SimulatedJob("j", 0.0, (SimulatedStage("s", (task("t", (CPU, 50 * MB)),)),))
    assert run(nodes(1), job).makespan_s == pytest.approx(1.0 + 0.1, abs=0.06)


def test_a_stage_waits_for_the_one_before() -> None:
    result = run(nodes(1), map_reduce("j", maps=2, reduces=1, size=50 * MB))
    disk_then_cpu_s = 2 * 0.5 + 1.0  # one disk reads twice, the second CPU monotask starts last
    network_then_cpu_s = 0.5 + 1.0
    work_s = disk_then_cpu_s + network_then_cpu_s
    # Three placements, each after a round (0.1 s) and, where the disk's APT is above EPT, the report that it is not.
    assert work_s < result.makespan_s < work_s + 3 * 0.25


def test_many_small_tasks_use_every_node_and_keep_their_cores_busy() -> None:
    tasks = tuple(task(f"t{n}", (CPU, 5 * MB)) for n in range(400))
    result = run(nodes(4), SimulatedJob("j", 0.0, (SimulatedStage("s", tasks),)))
    per_node = [list(result.placed_on.values()).count(f"n{n}") for n in range(4)]
    assert max(per_node) - min(per_node) <= 0.1 * sum(per_node)
    assert result.scheduling_efficiency["cpu"] > 0.85


def test_the_earlier_job_is_served_first() -> None:
    """EJF: two equal jobs, the second a moment later; the first ends well before it."""
    first, second = map_reduce("first", 16, 8, 10 * MB), map_reduce("second", 16, 8, 10 * MB, submitted_at_s=0.05)
    result = run(nodes(1), first, second)
    assert result.completion_s["first"] < 0.75 * result.completion_s["second"]


def test_sharing_at_the_grain_of_monotasks_beats_one_job_after_the_other() -> None:
    """While one job reads the other computes."""
    jobs = [map_reduce(name, 12, 4, 20 * MB) for name in ("a", "b", "c")]
    together = run(nodes(1), *jobs)
    alone = [run(nodes(1), job).makespan_s for job in jobs]
    assert together.makespan_s < 0.9 * sum(alone)


SIZES = st.integers(1, 20 * MB)


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.floats(0, 3), st.integers(1, 6), st.integers(1, 3), SIZES, st.integers(0, GIB // 3)),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 3),
)
def test_every_job_ends_and_the_same_workload_gives_the_same_result(
    shapes: list[tuple[float, int, int, int, int]], count: int
) -> None:
    jobs = []
    for number, (at_s, maps, reduces, size, memory_bytes) in enumerate(shapes):
        job = map_reduce(f"j{number}", maps, reduces, size, at_s)
        stages = tuple(
            SimulatedStage(s.name, tuple(SimulatedTask(t.name, t.monotasks, memory_bytes) for t in s.tasks), s.after)
            for s in job.stages
        )
        jobs.append(SimulatedJob(job.name, at_s, stages, memory_bytes, origin=number % count))
    first = SimulatedCluster(nodes(count), MasterSettings()).run(jobs, limit_s=10_000)
    assert len(first.placed_on) == sum(maps + reduces for _, maps, reduces, _, _ in shapes)
    assert SimulatedCluster(nodes(count), MasterSettings()).run(jobs) == first
