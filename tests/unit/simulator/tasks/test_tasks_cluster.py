"""Agents' cores and the master's core together, as the simulator drives them."""

from __future__ import annotations

import pytest

from master.core import MasterSettings
from penstock.model import Capacity, ResourceKind
from simulator.report import Report
from simulator.tasks.cluster import SimulatedCluster, Surroundings
from simulator.tasks.measure import report
from simulator.tasks.node_spec import NodeSpec
from simulator.tasks.workload import SimulatedJob, SimulatedMonotask, SimulatedStage, SimulatedTask

MB = 10**6
GIB = 2**30
CPU, DISK, NETWORK = ResourceKind.CPU, ResourceKind.DISK, ResourceKind.NETWORK


def nodes(count: int, cores: int = 2, memory_bytes: int = GIB) -> list[NodeSpec]:
    return [NodeSpec(Capacity(cores=cores, memory_bytes=memory_bytes), link_bytes_per_s=200e6) for _ in range(count)]


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


def ran(specs: list[NodeSpec], *jobs: SimulatedJob, around: Surroundings | None = None) -> SimulatedCluster:
    cluster = SimulatedCluster(specs, MasterSettings(), around)
    cluster.run(jobs, limit_s=10_000)
    return cluster


def run(specs: list[NodeSpec], *jobs: SimulatedJob) -> Report:
    return report(ran(specs, *jobs), {})


def test_one_task_takes_its_work_plus_the_scheduling_latency() -> None:
    """50 MB at 50 MB/s: a second; a round comes after 0.1 s, messages take 1 ms each."""
    job = SimulatedJob("j", 0.0, (SimulatedStage("s", (task("t", (CPU, 50 * MB)),)),))
    assert run(nodes(1), job).makespan_s == pytest.approx(1.0 + 0.1, abs=0.06)


def test_a_stage_waits_for_the_one_before() -> None:
    result = run(nodes(1), map_reduce("j", maps=2, reduces=1, size=50 * MB))
    disk_then_cpu_s = 2 * 0.5 + 1.0  # one disk reads twice, the second CPU monotask starts last
    network_then_cpu_s = 0.25 + 1.0
    work_s = disk_then_cpu_s + network_then_cpu_s
    # Three placements, each after a round (0.1 s) and, where the disk's APT is above EPT, the report that it is not.
    assert work_s < result.makespan_s < work_s + 3 * 0.25


def test_many_small_tasks_use_every_node_and_keep_their_cores_busy() -> None:
    tasks = tuple(task(f"t{n}", (CPU, 5 * MB)) for n in range(400))
    cluster = ran(nodes(4), SimulatedJob("j", 0.0, (SimulatedStage("s", tasks),)))
    placed = list(cluster.frameworks[0].placed_on.values())
    per_node = [placed.count(f"n{n}") for n in range(4)]
    assert max(per_node) - min(per_node) <= 0.1 * sum(per_node)
    cpu = report(cluster, {}).resources["cpu"]
    assert cpu.scheduling_efficiency is not None
    assert cpu.scheduling_efficiency > 0.85
    assert cpu.utilization_efficiency == pytest.approx(1.0), "a CPU monotask uses its core fully"


@pytest.mark.parametrize("ept_s", [1.0, 20.0])
def test_a_core_that_has_become_idle_is_used_at_once_with_any_ept(ept_s: float) -> None:
    """Then APT_cpu is 0 (Ursa §4.2.2). A minute of work on one core holds APT above EPT; the other core must take the
    short tasks one after the other, each with a round and the reports between, and not one in an EPT."""
    first = SimulatedJob("first", 0.0, (SimulatedStage("s", (task("long", (CPU, 3000 * MB)),)),))
    short = tuple(task(f"t{n}", (CPU, 10 * MB)) for n in range(60))
    then = SimulatedJob("then", 1.0, (SimulatedStage("s", short),))
    cluster = SimulatedCluster(nodes(1), MasterSettings(ept_s=ept_s, default_cpu_bytes_per_s=50e6))
    cluster.run([first, then])
    ended_at_s = cluster.frameworks[1].ended_at_s
    assert ended_at_s is not None
    assert ended_at_s < 1.0 + 60 * (0.2 + 0.3)


def test_the_earlier_job_is_served_first() -> None:
    """EJF: two equal jobs, the second a moment later; the first ends well before it."""
    first, second = map_reduce("first", 16, 8, 10 * MB), map_reduce("second", 16, 8, 10 * MB, submitted_at_s=0.05)
    result = run(nodes(1), first, second)
    assert result.jobs[0].response_s < 0.75 * result.jobs[1].response_s


def test_sharing_at_the_grain_of_monotasks_beats_one_job_after_the_other() -> None:
    """While one job reads the other computes."""
    jobs = [map_reduce(name, 12, 4, 20 * MB) for name in ("a", "b", "c")]
    together = run(nodes(1), *jobs)
    alone_s = [run(nodes(1), job).makespan_s for job in jobs]
    assert together.makespan_s < 0.9 * sum(alone_s)


def test_memory_that_tasks_hold_is_allocated_while_they_run() -> None:
    job = SimulatedJob("j", 0.0, (SimulatedStage("s", (task("t", (CPU, 50 * MB), memory_bytes=GIB // 2),)),))
    memory = run(nodes(1), job).resources["memory"]
    assert memory.scheduling_efficiency is not None
    assert 0.4 < memory.scheduling_efficiency < 0.5


def test_the_timeline_adds_up_to_the_utilization() -> None:
    cluster = ran(nodes(2), map_reduce("j", 9, 4, 30 * MB), around=Surroundings(timeline_s=0.5))
    result = report(cluster, {})
    assert result.timeline is not None
    for resource, used in result.timeline.used.items():
        whole = result.resources[resource].utilization * result.makespan_s
        assert sum(used) * 0.5 == pytest.approx(whole, rel=1e-3)


def test_a_run_that_cannot_end_is_reported_with_the_names_of_the_jobs() -> None:
    with pytest.raises(ValueError, match=r"after 1 s of simulated time these jobs have not ended: j"):
        SimulatedCluster(nodes(1), MasterSettings()).run([map_reduce("j", 8, 1, 50 * MB)], limit_s=1.0)


def test_a_job_s_stages_may_come_back_to_back_without_tasks_left_behind() -> None:
    """Every process of a job closes its connections, so no node keeps anything of it."""
    cluster = ran(nodes(3), map_reduce("j", 9, 9, 5 * MB))
    cluster.clock.run(lambda: False, cluster.clock.now_s + 5)
    assert all(not node.jobs and not node.held.by_key for node in cluster.nodes.values())
    assert not cluster.master.jobs
