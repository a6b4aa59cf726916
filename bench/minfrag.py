"""How long a heartbeat takes with MinFrag: 1,000 distinct executors × 4 resources × 300 slots, and how it grows.

python -m bench.minfrag
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from master.placement.executors import Demands, WaitingExecutors
from master.placement.minfrag import MinFrag
from simulator.executors.machines import PlannedMachines

#: A machine of Elasecutor §V.A: cores, disk and network bytes/s, bytes of memory.
CAPACITY = np.array([16.0, 500e6, 1.25e9, 64e9])
_SLOT_S = 3.0


def waiting(executors: int, slots: int, share: float, rng: np.random.Generator) -> WaitingExecutors:
    """Executors, each with a demand of its own that varies slot by slot up to ``share`` of a machine."""
    demands = Demands(slots)
    pending = WaitingExecutors(demands)
    for executor in range(executors):
        peak = rng.uniform(0.1, 1.0, size=4) * share * CAPACITY
        length = int(rng.integers(slots // 2, slots, endpoint=True))
        pending.add(executor, demands.add(peak[:, None] * rng.uniform(0.1, 1.0, size=(4, length))))
    return pending


def measure(executors: int, slots: int, share: float, *, busy: bool, repeat: int = 15) -> None:
    """Print the median and the worst heartbeat; ``busy``: of a machine that a heartbeat has already filled."""
    took_s: list[float] = []
    cpu_s: list[float] = []
    launched = 0
    for seed in range(repeat):
        pending = waiting(executors, slots, share, np.random.default_rng(seed))
        machines = PlannedMachines(["m0"], CAPACITY[None].copy(), slots)
        policy = MinFrag()
        if busy:
            for launch in policy.heartbeat(machines, 0, pending):
                machines.launch(0, pending.take(launch.demand), pending.demands.of(launch.demand))
            machines.tick(0)
        start, start_cpu = time.perf_counter(), time.thread_time()
        launched = len(policy.heartbeat(machines, 0, pending))
        cpu_s.append(time.thread_time() - start_cpu)
        took_s.append(time.perf_counter() - start)
    cpu, median, worst = statistics.median(cpu_s) * 1000, statistics.median(took_s) * 1000, max(took_s) * 1000
    machine = "filled" if busy else "empty"
    print(
        f"{executors:6} pending × 4 × {slots:4} slots ({slots * _SLOT_S / 60:3.0f} min), {machine:6} machine: "
        f"{launched:3} launched, median {median:7.3f} ms ({cpu:.3f} ms of CPU), worst {worst:7.3f} ms"
    )


def main() -> None:
    """The size that the design is measured by comes first."""
    measure(1000, 300, 0.3, busy=False)
    measure(1000, 300, 0.3, busy=True)
    measure(1000, 300, 0.05, busy=False)
    for executors in (1, 100, 5000):
        measure(executors, 300, 0.3, busy=False)
        measure(executors, 300, 0.3, busy=True)
    for slots in (100, 1000):
        measure(1000, slots, 0.3, busy=False)


if __name__ == "__main__":
    main()
