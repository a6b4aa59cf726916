"""The journal's records of tasks that frameworks of this node asked for.

A restarted agent needs the ends of tasks whose framework was away, and the placed tasks that a framework executes
itself: the framework asks it again only for commands, and for tasks without a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.core.events import EndUnread
from agent.core.instructions import Instruction, Record
from agent.core.records import Job, TaskEnd, TaskHere, journal_key
from penstock.wire.agent_api import TaskEnded
from penstock.wire.master_api import AwaitedTask

ENDS = "ends"
AWAITED = "awaited"


def awaited_task(job: Job, task: TaskHere) -> AwaitedTask:
    """Return a placed task as the master is told of it."""
    return AwaitedTask(
        job=job.record.job, stage=task.stage, request=task.request, node=task.node, opportunistic=task.opportunistic
    )


def keep_awaited(job: Job, name: str) -> list[Instruction]:
    """Journal a placed task that its framework executes itself, and which it therefore asks no later agent for."""
    task = job.tasks[name]
    own = task.state == "placed" and task.stage and task.request.command is None and not task.cancelled
    return [Record(AWAITED, journal_key(job.record.job, name), awaited_task(job, task))] if own else []


def drop_awaited(job: Job, name: str) -> list[Instruction]:
    """Remove the record of a task that is not awaited any more, if it may have one."""
    own = job.tasks[name].node and job.tasks[name].request.command is None
    return [Record(AWAITED, journal_key(job.record.job, name), None)] if own else []


def ended(job: Job, name: str) -> list[Instruction]:
    """Journal the end of a task that its framework may not read, in place of the record of the awaited task.

    That is every end while the framework is away, and that of a task which it executes itself: it does not ask the next
    agent for it, unless it has cancelled it.
    """
    gone = drop_awaited(job, name)
    keeps = not job.sessions or (gone and not job.tasks[name].cancelled)
    return keep_end(job, name) + gone if keeps else gone


def own_ends(job: Job) -> list[TaskEnded]:
    """Return the kept ends of tasks that a framework executes itself, for a connection that joins the job."""
    tasks = [(name, job.tasks[name]) for name in sorted(job.own_ends)]
    return [
        TaskEnded(job=job.record.job, task=name, node=task.node, ended=task.ended)
        for name, task in tasks
        if task.ended is not None
    ]


def end_unread(jobs: Mapping[str, Job], event: EndUnread) -> list[Instruction]:
    """Keep the end of a task whose framework is connected but does not read."""
    return keep_end(jobs[event.job], event.task) if event.job in jobs else []


def keep_end(job: Job, task: str) -> list[Instruction]:
    """Journal a task's end until its job is over."""
    known = job.tasks.get(task)
    if known is None or known.ended is None or task in job.kept_ends:
        return []
    own = bool(known.stage) and known.request.command is None
    kept = TaskEnd(job=job.record.job, task=task, node=known.node, ended=known.ended, own=own)
    _kept(job, kept)
    return [Record(ENDS, journal_key(job.record.job, task), kept)]


def take_back(jobs: Mapping[str, Job], awaited: Iterable[AwaitedTask], ends: Iterable[TaskEnd]) -> list[Instruction]:
    """Restore the records after a restart: a framework that asks for an ended task again is told how it ended."""
    instructions: list[Instruction] = []
    for placed in awaited:
        job, name = jobs.get(placed.job), placed.request.task
        if job is None:
            instructions.append(Record(AWAITED, journal_key(placed.job, name), None))
            continue
        job.tasks[name] = TaskHere(placed.stage, placed.request, placed.opportunistic)
        job.tasks[name].place(placed.node)
    for end in ends:
        job = jobs.get(end.job)
        if job is None:
            instructions.append(Record(ENDS, journal_key(end.job, end.task), None))
            continue
        if end.task in job.tasks:  # the earlier agent died between the two records
            instructions += drop_awaited(job, end.task)
        job.tasks[end.task] = known = TaskHere.of_earlier_agent(end.task)
        known.end(end.ended, end.node)
        _kept(job, end)
    return instructions


def _kept(job: Job, end: TaskEnd) -> None:
    job.kept_ends.add(end.task)
    if end.own:
        job.own_ends.add(end.task)


def drop(job: Job) -> list[Instruction]:
    """Remove the records of a job that is over."""
    name = job.record.job
    ends: list[Instruction] = [Record(ENDS, journal_key(name, task), None) for task in sorted(job.kept_ends)]
    placed = [task for task, known in job.tasks.items() if known.state == "placed"]
    return ends + [gone for task in placed for gone in drop_awaited(job, task)]
