"""How long a scheduling round and a heartbeat take, and how that grows.

python -m bench.scheduling_round

A round places 1,000 tasks of 50 stages of 25 jobs. Times are of the processor, so that a host shared with others shows
nearly the times of an idle one; the wall clock's median is beside them.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from random import Random

from msgspec.structs import replace

from bench._executors import varying
from master.core import Cluster, MasterSettings
from master.core import events as e
from master.core.instructions import Predict
from master.ordering import NAMES
from penstock.model import Capacity, ContainerSpec, Executor, KindAmounts, TaskRequest
from penstock.wire import master_api as api

MB = 1e6
GIB = 2**30


@dataclass(frozen=True)
class Size:
    """Nodes, and ready tasks in jobs × stages × tasks."""

    nodes: int
    jobs: int = 25
    stages: int = 2
    tasks: int = 20


def load(rng: Random, **more: object) -> api.Load:
    """A bit of everything."""
    return api.Load(
        rates=KindAmounts(*(rng.uniform(0.5, 1.5) * rate * MB for rate in (1600, 150, 120))),
        pending=KindAmounts(*(rng.uniform(0, 8) * MB for _ in range(3))),
        idle=KindAmounts(float(rng.randint(0, 16)), 1, 2),
        **more,  # type: ignore[arg-type]
    )


def cluster(size: Size, rng: Random, ordering: str = "ejf") -> Cluster:
    """A cluster with a bit of load everywhere, and ready tasks."""
    made = Cluster(MasterSettings(ordering=ordering))
    capacity = Capacity(cores=32.0, memory_bytes=128 * GIB)
    for index in range(size.nodes):
        message = api.Register(
            protocol=1, node=f"n{index}", version="0", capacity=capacity, load=load(rng), complete=True
        )
        made.handle(e.Received(message.node, message), 0.0)
    for job in range(size.jobs):
        name = f"j{job}"
        state = api.JobState(job=name, name=name, user="u", memory_bytes=0, priority=0.0, submitted_at=float(job))
        made.handle(e.Received("n0", state), 0.0)
        for stage in range(size.stages):
            requests = [
                TaskRequest(
                    task=f"{stage}-{task}",
                    usage=KindAmounts(*(rng.uniform(0, 20) * MB for _ in range(3))),
                    memory_bytes=int(rng.uniform(0, 4) * GIB),
                )
                for task in range(size.tasks)
            ]
            made.handle(e.Received("n0", api.ReadyTasks(job=name, stage=f"s{stage}", tasks=requests)), 0.0)
    return made


def measure_round(size: Size, ordering: str = "ejf", repeat: int = 7) -> None:
    """Print the median round."""
    cpu_s: list[float] = []
    wall_s: list[float] = []
    placed = 0
    for seed in range(repeat):
        made = cluster(size, Random(seed), ordering)
        before = made.counts["assigned"]
        cpu, wall = time.process_time(), time.perf_counter()
        made.handle(e.RoundDue(100.0), 0.1)
        cpu_s.append(time.process_time() - cpu)
        wall_s.append(time.perf_counter() - wall)
        placed = made.counts["assigned"] - before
    median, wall_ms = statistics.median(cpu_s) * 1000, statistics.median(wall_s) * 1000
    print(
        f"{size.nodes:6} nodes {size.jobs:3} jobs {size.jobs * size.stages:4} stages "
        f"{size.jobs * size.stages * size.tasks:5} tasks, {ordering:6}: {placed:5} placed, {median:7.1f} ms "
        f"({min(cpu_s) * 1000:.1f} to {max(cpu_s) * 1000:.1f}), wall clock {wall_ms:7.1f} ms"
    )


def full(nodes: int, jobs: int, stages: int, tasks: int, ordering: str) -> Cluster:
    """Return a cluster with memory held by others, where all ready tasks wait."""
    rng = Random(1)
    made = Cluster(MasterSettings(ordering=ordering))
    for index in range(nodes):
        message = api.Register(
            protocol=1, node=f"n{index}", version="0", capacity=Capacity(cores=32.0, memory_bytes=128 * GIB),
            load=load(rng, promised_memory_bytes=127 * GIB), complete=True,
        )  # fmt: skip
        made.handle(e.Received(message.node, message), 0.0)
    for job in range(jobs):
        name = f"j{job}"
        state = api.JobState(job=name, name=name, user="u", memory_bytes=0, priority=0.0, submitted_at=float(job))
        made.handle(e.Received("n0", state), 0.0)
        for stage in range(stages):
            requests = [
                TaskRequest(
                    task=f"{stage}-{task}",
                    usage=KindAmounts(*(rng.uniform(0, 20) * MB for _ in range(3))),
                    memory_bytes=int(rng.uniform(2, 4) * GIB),
                )
                for task in range(tasks)
            ]
            made.handle(e.Received("n0", api.ReadyTasks(job=name, stage=f"s{stage}", tasks=requests)), 0.0)
    return made


def measure_waiting(
    nodes: int, jobs: int, stages: int, tasks: int, ordering: str = "gittins", repeat: int = 15
) -> None:
    """Print the time of a round that places nothing, after a heartbeat that changes nothing."""
    made = full(nodes, jobs, stages, tasks, ordering)
    beat = e.Received("n1", api.Heartbeat(load=made.nodes["n1"].load))
    took_ms: list[float] = []
    for turn in range(repeat + 1):
        now = 0.1 * (turn + 1)
        made.handle(beat, now)
        cpu = time.process_time()
        made.handle(e.RoundDue(100.0 + now), now)
        took_ms.append((time.process_time() - cpu) * 1000)
    del took_ms[0]  # the first sees everything for the first time
    print(
        f"{nodes:6} nodes, {jobs:4} jobs of {stages:4} stages of {tasks:2} tasks wait, {ordering:7}: "
        f"{made.counts['assigned']} placed, {statistics.median(took_ms):6.1f} ms "
        f"({min(took_ms):.1f} to {max(took_ms):.1f})"
    )


def busy(nodes: int, held: int, rng: Random) -> Cluster:
    """Return a cluster whose cores are all promised to so many commands on each node. Every second node also reports
    availability that changes slot by slot, as where executors run.
    """
    capacity = Capacity(cores=16.0, memory_bytes=64 * GIB)
    command = ContainerSpec(argv=("true",), cpu_cores=capacity.cores / held)
    made = Cluster(MasterSettings(node_timeout_s=600.0, gather_s=0.0))
    placed: dict[str, list[api.PlacedTask]] = {}
    awaited: list[api.AwaitedTask] = []
    for name in (f"n{index}" for index in range(nodes)):
        for index in range(held):
            asked = TaskRequest(
                task=f"{name}-{index}", usage=KindAmounts(cpu=MB), memory_bytes=4 * GIB, command=command
            )
            awaited.append(api.AwaitedTask(job="j", stage="s", request=asked, node=name))
            placed.setdefault(name, []).append(
                api.PlacedTask(
                    job="j", stage="s", task=asked.task, origin="n0", remaining=asked.usage,
                    memory_bytes=asked.memory_bytes, command=True,
                )
            )  # fmt: skip
    for index, (name, tasks) in enumerate(placed.items()):
        slots = [(rng.randrange(500), 100_000, 100_000, 8192) for _ in range(100 if index % 2 else 1)]
        reported = api.Availability(slot_s=3.0, capacity=(16_000, 1_000_000, 1_000_000, 65_536), slots=slots)
        origin = index == 0
        said = api.Register(
            protocol=1, node=name, version="0", capacity=capacity, placed=tasks, awaited=awaited if origin else [],
            load=load(rng, promised_cores=capacity.cores, promised_memory_bytes=held * 4 * GIB, availability=reported),
            jobs=[
                api.JobState(job="j", name="j", user="u", memory_bytes=0, priority=0.0, submitted_at=0.0)
            ] if origin else [],
        )  # fmt: skip
        made.handle(e.Received(name, said), 0.0)
    return made


def add_executors(made: Cluster, executors: int, jobs: int) -> None:
    """Add waiting executors, each job's of one application, of 4 to 8 cores; their forecasts are known."""
    asked: list[Predict] = []
    for job in range(jobs):
        name = f"e{job}"
        state = api.JobState(job=name, name=name, user="u", memory_bytes=0, priority=0.0, submitted_at=float(job))
        made.handle(e.Received("n0", state), 0.0)
        command = ContainerSpec(argv=("true",), cpu_cores=4.0 + 4.0 * job / jobs)
        requests = [
            TaskRequest(
                task=f"{index}",
                usage=KindAmounts(),
                memory_bytes=4 * GIB,
                command=command,
                executor=Executor(application=name),
            )
            for index in range(executors // jobs)
        ]
        ready = made.handle(e.Received("n0", api.ReadyTasks(job=name, stage="s", tasks=requests)), 0.0)
        asked += [one for one in ready if isinstance(one, Predict)]
    for one in asked:
        profile = varying(100, cores=one.settings.cores)
        made.handle(e.Forecasted(one.application, one.settings, profile, "mean of 3 runs", 0.1, one.sizing), 0.0)


def measure_executors(nodes: int, executors: int, held: int = 8, repeat: int = 7) -> None:
    """Print the times of rounds that place none of the executors, which have waited long: of one that examines all
    nodes, once per heartbeat time, and of one between, when a tenth of the nodes have reported.
    """
    made = busy(nodes, held, Random(1))
    add_executors(made, executors, jobs=20)
    all_ms: list[float] = []
    some_ms: list[float] = []
    for turn in range(2 * repeat + 2):
        everywhere = turn % 2 == 0
        now = 0.1 + 31.0 * (turn // 2) + (0.0 if everywhere else 0.1)
        for index in range(0, nodes, 1 if everywhere else 10):
            node = made.nodes[f"n{index}"]
            made.handle(e.Received(node.name, api.Heartbeat(load=replace(node.load, availability=None))), now)
        cpu = time.process_time()
        made.handle(e.RoundDue(100.0 + now), now)
        (all_ms if everywhere else some_ms).append((time.process_time() - cpu) * 1000)
    for name, took_ms in (("all nodes", all_ms), (f"{nodes // 10} nodes", some_ms)):
        del took_ms[0]  # the first sees everything for the first time
        print(
            f"{nodes:6} nodes, {executors:4} executors wait, {name:10} examined: {made.counts['assigned']} placed, "
            f"{statistics.median(took_ms):7.1f} ms ({min(took_ms):.1f} to {max(took_ms):.1f})"
        )


def measure_heartbeats(nodes: int, held: int, count: int = 2000) -> None:
    """Print the time of one heartbeat on nodes that hold so many tasks each, and name one job that moved."""
    rng = Random(1)
    made = cluster(Size(nodes, jobs=1, stages=1, tasks=1), rng)
    for name in (f"n{index}" for index in range(nodes)):
        tasks = [
            api.PlacedTask(
                job="j0", stage="s", task=f"{name}-{index}", origin="n0", remaining=KindAmounts(cpu=MB), memory_bytes=1
            )
            for index in range(held)
        ]
        said = api.Register(
            protocol=1, node=name, version="0", capacity=Capacity(cores=32.0, memory_bytes=128 * GIB), load=load(rng),
            placed=tasks, jobs=[] if name != "n0" else [
                api.JobState(job="j0", name="j0", user="u", memory_bytes=0, priority=0.0, submitted_at=0.0)
            ],
        )  # fmt: skip
        made.handle(e.NodeAway(name), 0.0)
        made.handle(e.Received(name, said), 0.0)
    use = api.JobUse(job="j0", service_s=1.0, running=1)
    beats = [e.Received(f"n{rng.randrange(nodes)}", api.Heartbeat(load=load(rng, jobs=[use]))) for _ in range(count)]
    took_s: list[float] = []
    for index, beat in enumerate(beats):
        now = 1.0 + index / max(nodes, count)
        cpu = time.process_time()
        made.handle(beat, now)
        took_s.append(time.process_time() - cpu)
    print(
        f"{nodes:6} nodes with {held:3} tasks each: a heartbeat takes {statistics.median(took_s) * 1e6:6.1f} µs "
        f"(99 of 100 within {statistics.quantiles(took_s, n=100)[98] * 1e6:.0f} µs)"
    )


def main() -> None:
    """The rounds that the design is measured by come first."""
    print("A round, by nodes:")
    for nodes in (10, 100, 1000, 10_000):
        measure_round(Size(nodes))
    print("by ordering:")
    for ordering in NAMES:
        measure_round(Size(1000), ordering)
    print("by shape:")
    for size in (Size(1000, 1, 50, 20), Size(1000, 1, 1, 1000), Size(1000, 250, 2, 2), Size(100, 25, 2, 100)):
        measure_round(size, repeat=3)
    measure_round(Size(10_000, 1, 50, 20))
    print("with nothing to place:")
    for jobs, stages, tasks in ((1000, 1, 1), (100, 10, 1), (100, 10, 20), (1, 1000, 1)):
        measure_waiting(100, jobs, stages, tasks)
    measure_waiting(10_000, 100, 10, 1)
    for ordering in ("ejf", "las_mq"):
        measure_waiting(100, 1000, 1, 1, ordering)
    print("with executors that find no place:")
    for nodes in (100, 1000, 5000):
        measure_executors(nodes, 200)
    print("A heartbeat:")
    for nodes, held in ((100, 0), (1000, 16), (10_000, 16), (1000, 64)):
        measure_heartbeats(nodes, held)


if __name__ == "__main__":
    main()
