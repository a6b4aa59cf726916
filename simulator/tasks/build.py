"""Build jobs from a scenario's tables. The same seed gives the same jobs."""

from __future__ import annotations

import random
from dataclasses import replace

from penstock.model import Executor, ResourceKind
from simulator.tasks.graphs import tpch_jobs, workflow_jobs
from simulator.tasks.mixed import mixed_jobs
from simulator.tasks.spec import CommandTable, JobTable, MonotaskTable, NodeTable, Spec, StageTable
from simulator.tasks.workload import (
    Phase,
    SimulatedCommand,
    SimulatedJob,
    SimulatedMonotask,
    SimulatedStage,
    SimulatedTask,
)


def jobs_of(spec: Spec, seed: int) -> list[SimulatedJob]:
    """Return the jobs by time of submission; their origins go through the nodes in turn.

    Raises:
        ValueError: there are no jobs, or a job is invalid; the message names it.
    """
    dice = random.Random(seed)  # noqa: S311 - a workload is no secret
    node = spec.cluster.nodes[0]
    jobs = [job for table in spec.jobs for job in _jobs(table, node, dice)]
    if spec.tpch is not None:
        jobs += tpch_jobs(spec.tpch, node, dice)
    if spec.workflows is not None:
        jobs += workflow_jobs(spec.workflows, node)
    if spec.mixed is not None:
        jobs += mixed_jobs(spec.mixed, sum(one.cores * one.count for one in spec.cluster.nodes), dice)
    if not jobs:
        raise ValueError("the scenario has no jobs: add [[jobs]], [tpch], [workflows] or [mixed]")
    jobs.sort(key=lambda job: job.submitted_at_s)
    names = [job.name for job in jobs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two jobs are named {twice!r}")
    for number, job in enumerate(jobs):
        stages = job.stages if spec.opportunistic else tuple(replace(s, opportunistic=False) for s in job.stages)
        if not spec.elastic:
            stages = tuple(replace(s, tasks=tuple(_inelastic(task) for task in s.tasks)) for s in stages)
        if spec.known_lengths:
            stages = tuple(replace(s, tasks=tuple(_told(task, node) for task in s.tasks)) for s in stages)
        jobs[number] = replace(job, stages=stages, origin=number)
    return jobs


def _inelastic(task: SimulatedTask) -> SimulatedTask:
    return task if task.command is None else replace(task, command=replace(task.command, executor=None))


def _told(task: SimulatedTask, node: NodeTable) -> SimulatedTask:
    """Return a task whose command announces its length, as the bytes that a slot of its kind processes in that time."""
    if task.command is None:
        return task
    rate = node.rates_bytes_per_s()[task.command.kind.value]
    length_s = sum(phase.seconds for phase in task.command.phases)
    return replace(task, command=replace(task.command, input_bytes=round(length_s * rate)))


def _jobs(table: JobTable, node: NodeTable, dice: random.Random) -> list[SimulatedJob]:
    return [
        SimulatedJob(
            f"{table.name}-{number + 1}" if table.count > 1 else table.name,
            table.submitted_at_s + number * table.every_s,
            _stages(table, node, dice),
            int(table.memory_bytes),
            rdl=table.rdl,
            deadline_s=table.deadline_s,
            user=table.user,
        )
        for number in range(table.count)
    ]


def _stages(table: JobTable, node: NodeTable, dice: random.Random) -> tuple[SimulatedStage, ...]:
    stages: list[SimulatedStage] = []
    for number, stage in enumerate(table.stages):
        base = stage.name or f"s{number}"
        for turn in range(stage.repeat):
            name = f"{base}.{turn}" if stage.repeat > 1 else base
            before = (stages[-1].name,) if stages else ()
            after = before if stage.after is None or turn else tuple(stage.after)
            known = {one.name for one in stages}
            unknown = [one for one in after if one not in known]
            if unknown or name in known:
                wrong = f"waits for {unknown[0]!r}, which is not before it" if unknown else "is named twice"
                raise ValueError(f"job {table.name!r}: stage {name!r} {wrong}")
            tasks = tuple(_task(f"{name}/{index}", stage, table, node, dice) for index in range(stage.tasks))
            stages.append(SimulatedStage(name, tasks, after, stage.opportunistic))
    return tuple(stages)


def _task(name: str, stage: StageTable, job: JobTable, node: NodeTable, dice: random.Random) -> SimulatedTask:
    if bool(stage.monotasks) == (stage.command is not None):
        raise ValueError(f"job {job.name!r}: a stage has either monotasks or a command")
    factor = 1.0 + stage.spread * dice.uniform(-1.0, 1.0) if stage.spread else 1.0
    nodes = tuple(stage.nodes)
    if stage.command is not None:
        return SimulatedTask(name, (), 0, _command(stage.command, factor, stage.tasks), nodes)
    monotasks = tuple(_monotask(table, node, factor) for table in stage.monotasks)
    return SimulatedTask(name, monotasks, int(stage.memory_bytes), None, nodes)


def _monotask(table: MonotaskTable, node: NodeTable, factor: float) -> SimulatedMonotask:
    size = table.bytes + table.seconds * node.rates_bytes_per_s()[table.kind]
    return SimulatedMonotask(ResourceKind(table.kind), round(size * factor))


def _command(table: CommandTable, factor: float, tasks: int) -> SimulatedCommand:
    phases = tuple(
        Phase(phase.seconds * factor, phase.cpu_cores, phase.memory_bytes, phase.disk_bytes_per_s)
        for phase in table.phases
    )
    command = SimulatedCommand(phases, table.cpu_cores, int(table.memory_bytes), ResourceKind(table.kind))
    if (of := table.executor) is None:
        return command
    executor = Executor(application=of.application, input_bytes=int(of.input_bytes), sizing=of.sizing)
    # Each announces its part of the input, as with `penstock submit --executors`.
    return replace(command, executor=executor, input_bytes=executor.input_bytes // tasks)
