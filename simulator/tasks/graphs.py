"""Build jobs from public graphs: TPC-H queries, which have no bytes, and scientific workflows, which have.

:class:`TpchTable` and :class:`WorkflowTable` list the assumptions.
"""

from __future__ import annotations

import random
from pathlib import Path

from penstock.model import ResourceKind
from simulator.tasks.spec import NodeTable, TpchTable, WorkflowTable
from simulator.tasks.workload import SimulatedJob, SimulatedMonotask, SimulatedStage, SimulatedTask
from simulator.traces import TpchDag, Workflow, WorkflowTask, text_of, tpch_dags, workflows


def tpch_jobs(table: TpchTable, node: NodeTable, dice: random.Random) -> list[SimulatedJob]:
    """Return the jobs of the table, drawn with ``dice``.

    Raises:
        TraceError: the file cannot be read or has another form (a ValueError).
        ValueError: the file has no query of a scale in the table.
    """
    by_scale: dict[str, list[TpchDag]] = {}
    for dag in tpch_dags(text_of(Path(table.file)), where=table.file).values():
        if len(dag.stages) >= table.least_stages:
            by_scale.setdefault(dag.name.partition("/")[0], []).append(dag)
    missing = [scale for scale in table.scales if scale not in by_scale]
    if missing:
        raise ValueError(f"tpch.scales: no such query of scale {missing[0]!r}; there are {', '.join(by_scale)}")
    jobs = []
    for number in range(table.count):
        scale = dice.choices(list(table.scales), list(table.scales.values()))[0]
        dag = dice.choice(by_scale[scale])
        jobs.append(_job(f"{number + 1}:{dag.name}", number * table.every_s, dag, table, node, dice))
    return jobs


def _job(
    name: str, submitted_at_s: float, dag: TpchDag, table: TpchTable, node: NodeTable, dice: random.Random
) -> SimulatedJob:
    parents: dict[int, list[str]] = {index: [] for index in range(len(dag.stages))}
    for before, after in dag.edges:
        parents[after].append(f"s{before}")
    stages, largest = [], 0
    for index, stage in enumerate(dag.stages):
        tasks = tuple(
            _task(f"s{index}/{number}", stage.mean_task_s, not parents[index], table, node, dice)
            for number in range(stage.tasks)
        )
        largest = max(largest, sum(task.memory_bytes for task in tasks))
        stages.append(SimulatedStage(f"s{index}", tasks, tuple(dict.fromkeys(parents[index]))))
    return SimulatedJob(name, submitted_at_s, tuple(stages), largest)


def _task(
    name: str, mean_s: float, first: bool, table: TpchTable, node: NodeTable, dice: random.Random
) -> SimulatedTask:
    time_s = mean_s * table.time_scale * (1.0 + table.spread * dice.uniform(-1.0, 1.0))
    size = max(1, round(time_s * node.cpu_bytes_per_s))
    if first:
        read = SimulatedMonotask(ResourceKind.DISK, round(size / table.disk_compression))
    else:
        read = SimulatedMonotask(ResourceKind.NETWORK, round(size * table.shuffle))
    work = SimulatedMonotask(ResourceKind.CPU, size)
    return SimulatedTask(name, (read, work), round(size * table.memory_to_input))


def workflow_jobs(table: WorkflowTable, node: NodeTable) -> list[SimulatedJob]:
    """Return the runs that the table names, in its order.

    Raises:
        TraceError: the file cannot be read or has another form (a ValueError).
        ValueError: the file has no instance of a name.
    """
    known = {run.name: run for run in workflows(text_of(Path(table.file)), where=table.file)}
    missing = [name for name in table.names if name not in known]
    if missing:
        raise ValueError(f"workflows.names: no instance {missing[0]!r} in {table.file}")
    return [
        _workflow_job(known[name], number * table.every_s, table, node)
        for number, name in enumerate(table.names or known)
    ]


def _workflow_job(run: Workflow, submitted_at_s: float, table: WorkflowTable, node: NodeTable) -> SimulatedJob:
    """Return a workflow as a job. A stage is a set of tasks with the same parents and the same children."""
    awaited_by: dict[str, set[str]] = {task.name: set() for task in run.tasks}
    for task in run.tasks:
        for parent in task.parents:
            awaited_by[parent].add(task.name)
    groups: dict[tuple[frozenset[str], frozenset[str]], list[WorkflowTask]] = {}
    for task in run.tasks:
        groups.setdefault((frozenset(task.parents), frozenset(awaited_by[task.name])), []).append(task)
    stage_of = {task.name: f"s{number}" for number, group in enumerate(groups.values()) for task in group}
    stages = [
        SimulatedStage(
            stage_of[group[0].name],
            tuple(
                _workflow_task(f"{stage_of[task.name]}/{number}", task, table, node)
                for number, task in enumerate(group)
            ),
            tuple(dict.fromkeys(stage_of[parent] for parent in group[0].parents)),
        )
        for group in groups.values()
    ]
    return SimulatedJob(run.name, submitted_at_s, tuple(stages))


def _workflow_task(name: str, task: WorkflowTask, table: WorkflowTable, node: NodeTable) -> SimulatedTask:
    work = round(task.runtime_s * table.time_scale * node.cpu_bytes_per_s)
    monotasks = (
        SimulatedMonotask(ResourceKind.NETWORK, task.input_bytes),
        SimulatedMonotask(ResourceKind.CPU, work),
        SimulatedMonotask(ResourceKind.DISK, task.output_bytes),
    )
    return SimulatedTask(name, monotasks, min(task.memory_bytes or 0, int(node.memory_bytes)))
