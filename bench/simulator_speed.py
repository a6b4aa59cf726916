"""``python -m bench.simulator_speed``: how long the simulator takes for clusters of growing size.

Each node gets a hundred tasks of a network and a CPU monotask (1.2 s alone), in jobs of ten stages; the largest row is
1,000 nodes and 100,000 tasks. Prints CPU seconds, events, and simulated seconds per CPU second.
"""

from __future__ import annotations

import time

from master.core import MasterSettings
from penstock.model import Capacity, ResourceKind
from simulator.tasks.cluster import SimulatedCluster
from simulator.tasks.node_spec import NodeSpec
from simulator.tasks.workload import SimulatedJob, SimulatedMonotask, SimulatedStage, SimulatedTask

MB = 10**6
NODES = (10, 100, 1000)
STAGES, TASKS = 10, 100
NODE = NodeSpec(Capacity(cores=4.0, memory_bytes=16 << 30), 50.0 * MB, 100.0 * MB, 125.0 * MB)


def _job(number: int, nodes: int, every_s: float) -> SimulatedJob:
    monotasks = (SimulatedMonotask(ResourceKind.NETWORK, 25 * MB), SimulatedMonotask(ResourceKind.CPU, 50 * MB))
    stages = tuple(
        SimulatedStage(
            f"s{stage}",
            tuple(SimulatedTask(f"{stage}/{task}", monotasks, 100 * MB) for task in range(TASKS)),
            (f"s{stage - 1}",) if stage else (),
        )
        for stage in range(STAGES)
    )
    return SimulatedJob(f"j{number}", number * every_s, stages, 0, number % nodes)


def main() -> None:
    """Print a row per size."""
    print(f"{'nodes':>6} {'tasks':>8} {'simulated s':>12} {'events':>10} {'CPU s':>8} {'simulated/CPU':>14}")
    for nodes in NODES:
        count = nodes * 100 // (STAGES * TASKS)
        jobs = [_job(number, nodes, 20.0 / count) for number in range(count)]
        cluster = SimulatedCluster([NODE] * nodes, MasterSettings())
        start_s = time.process_time()
        cluster.run(jobs)
        taken_s = time.process_time() - start_s
        now_s, events = cluster.clock.now_s, cluster.clock.events
        tasks = sum(len(framework.placed_on) for framework in cluster.frameworks)
        print(f"{nodes:6} {tasks:8} {now_s:12.1f} {events:10} {taken_s:8.1f} {now_s / taken_s:14.2f}")


if __name__ == "__main__":
    main()
