"""How long a scheduling round takes: 200 tasks of 10 stages on 100 nodes, and what grows with what.

python -m bench.scheduling_round
"""

from __future__ import annotations

import statistics
import time
from random import Random

from master.core import Cluster, MasterSettings
from master.core import events as e
from penstock.model import Capacity, KindAmounts, TaskRequest
from penstock.wire import master_api as api

MB = 1e6


def cluster(nodes: int, jobs: int, stages: int, tasks: int, rng: Random) -> Cluster:
    """A cluster with a bit of load everywhere, and ``jobs`` × ``stages`` × ``tasks`` ready tasks."""
    made = Cluster(MasterSettings())
    for index in range(nodes):
        load = api.Load(
            rates=KindAmounts(*(rng.uniform(0.5, 1.5) * rate * MB for rate in (1600, 150, 120))),
            pending=KindAmounts(*(rng.uniform(0, 8) * MB for _ in range(3))),
            idle=KindAmounts(float(rng.randint(0, 16)), 1, 2),
        )
        capacity = Capacity(cores=32.0, memory_bytes=128 * 2**30)
        message = api.Register(protocol=1, node=f"n{index}", version="0", capacity=capacity, load=load, complete=True)
        made.handle(e.Said(message.node, message), 0.0)
    for job in range(jobs):
        name = f"j{job}"
        state = api.JobState(job=name, name=name, user="u", memory_bytes=0, priority=0.0, submitted_at=float(job))
        made.handle(e.Said("n0", state), 0.0)
        for stage in range(stages):
            requests = [
                TaskRequest(
                    task=f"{stage}-{task}",
                    usage=KindAmounts(*(rng.uniform(0, 20) * MB for _ in range(3))),
                    memory_bytes=int(rng.uniform(0, 4) * 2**30),
                )
                for task in range(tasks)
            ]
            made.handle(e.Said("n0", api.ReadyTasks(job=name, stage=f"s{stage}", tasks=requests)), 0.0)
    return made


def measure(nodes: int, jobs: int, stages: int, tasks: int, repeat: int = 15) -> None:
    """Print the median and the worst round of ``repeat``."""
    took_s: list[float] = []
    placed = 0
    for seed in range(repeat):
        made = cluster(nodes, jobs, stages, tasks, Random(seed))
        before = made.counts["assigned"]
        start = time.perf_counter()
        made.handle(e.RoundDue(100.0), 0.1)
        took_s.append(time.perf_counter() - start)
        placed = made.counts["assigned"] - before
    median, worst = statistics.median(took_s) * 1000, max(took_s) * 1000
    total = jobs * stages * tasks
    print(
        f"{nodes:5} nodes {jobs * stages:4} stages {total:6} tasks: {placed:5} placed, "
        f"median {median:7.1f} ms, worst {worst:7.1f} ms, {median * 1000 / total:6.1f} µs a task"
    )


def main() -> None:
    """The round that the design is measured by comes first."""
    measure(100, 5, 2, 20)
    measure(10, 5, 2, 20)
    measure(1000, 5, 2, 20, repeat=5)
    measure(100, 20, 2, 20, repeat=5)
    measure(100, 5, 2, 200, repeat=5)
    measure(20, 5, 2, 1000, repeat=5)


if __name__ == "__main__":
    main()
