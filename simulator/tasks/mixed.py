"""Draw production and best-effort jobs from distributions, as Rayon's Workload A (§6.1.2, §6.4).

:class:`MixedTable` lists the assumptions.
"""

from __future__ import annotations

import math
import random

from simulator.tasks.spec import MixedTable
from simulator.tasks.workload import Phase, SimulatedCommand, SimulatedJob, SimulatedStage, SimulatedTask

#: A reservation's time beyond the tasks' own time (seconds), for starting commands and for waiting for rounds.
_START_S = 3.0


def mixed_jobs(table: MixedTable, cluster_cores: float, dice: random.Random) -> list[SimulatedJob]:
    """Return the jobs by submission. Their demand is ``load`` × the cluster's cores over the submission period."""
    shapes = [_shape(table, dice) for _ in range(table.count)]
    wanted = table.cpu_cores * sum(containers * waves * task_s for containers, waves, task_s in shapes)
    scale = table.load * cluster_cores * table.count * table.every_s / wanted
    return [
        _job(number, containers, waves, max(table.least_task_s, task_s * scale), table, dice)
        for number, (containers, waves, task_s) in enumerate(shapes)
    ]


def _shape(table: MixedTable, dice: random.Random) -> tuple[int, int, float]:
    """Return a job's parallel containers, the number of tasks in sequence per container, and the unscaled task time."""
    containers = min(
        table.most_containers, max(1, round(dice.lognormvariate(math.log(table.containers), table.spread)))
    )
    return containers, dice.choice((1, 1, 2, 3)), dice.lognormvariate(0.0, table.spread / 2)


def _job(
    number: int, containers: int, waves: int, task_s: float, table: MixedTable, dice: random.Random
) -> SimulatedJob:
    tasks = tuple(
        SimulatedTask(f"t{index}", (), 0, _command(task_s * dice.uniform(0.95, 1.05), table))
        for index in range(containers * waves)
    )
    submitted_at_s = number * table.every_s
    stages = (SimulatedStage("s", tasks),)
    if dice.random() >= table.production:
        return SimulatedJob(f"best-{number + 1}", submitted_at_s, stages)
    lease_s = math.ceil(waves * task_s * 1.05 * (1 + table.over_reservation) + _START_S)
    deadline_s = float(math.ceil(lease_s * dice.uniform(*table.slack)))
    bundle = f"<{table.memory_bytes:.0f}B,{table.cpu_cores:g}core>"
    atom = f"atom({bundle},1,{containers},{lease_s}s,{containers * lease_s}s)"
    rdl = f"window({atom},+0s,+{deadline_s:g}s)"
    return SimulatedJob(f"prod-{number + 1}", submitted_at_s, stages, rdl=rdl, deadline_s=deadline_s)


def _command(seconds: float, table: MixedTable) -> SimulatedCommand:
    phase = Phase(seconds, table.cpu_cores, table.memory_bytes)
    return SimulatedCommand((phase,), table.cpu_cores, int(table.memory_bytes))
