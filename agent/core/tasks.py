"""Placed tasks, from both sides: what frameworks here want placed (origin), and what the master placed here (node)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from agent.core.end_events import EndHeard, EndUnread
from agent.core.instructions import Instruction, Notify, Record, TellMaster
from agent.core.records import HeldTask, Job, TaskEnd, TaskHere
from penstock.model import Ended, EndedBy, KindAmounts, TaskRequest
from penstock.model.work import Opportunistic
from penstock.wire.agent_api import TaskEnded, TaskPlaced, TaskStuck
from penstock.wire.errors import bad_request, refused
from penstock.wire.master_api import (
    Assign,
    AwaitedTask,
    CommandEnded,
    Load,
    PlacedTask,
    ReadyTasks,
    TasksCancelled,
    TasksDone,
    TellEnded,
    TellPlaced,
    TellStuck,
)

ROOM = "tasks"
ENDS = "ends"  # of tasks whose framework was away
_Key = tuple[str, str]


def journal_key(job: str, task: str) -> str:
    """One name for both; task names come from clients, so the journal hashes it before it becomes a file."""
    return f"{job}/{task}"


class HeldTasks:
    """What the master placed on this node: each holds its memory until it is done."""

    def __init__(self) -> None:
        self.by_key: dict[_Key, HeldTask] = {}
        self.waiting: dict[_Key, float] = {}  # opportunistic commands that wait for slack, in order: since when
        self.unheard: dict[_Key, HeldTask] = {}  # commands of whose end the master has yet to hear

    def __iter__(self) -> Iterator[HeldTask]:
        return iter(self.by_key.values())

    def of_job(self, job: str) -> list[HeldTask]:
        """A job's tasks on this node."""
        return [task for task in self.by_key.values() if task.job == job]

    def hold(self, decision: Assign) -> HeldTask:
        """Accept a placement."""
        request = decision.request
        task = HeldTask(
            job=decision.job,
            stage=decision.stage,
            task=request.task,
            user=decision.user,
            origin=decision.origin,
            request=request,
            remaining=request.usage,
            opportunistic=decision.opportunistic,
            profile=None if request.executor is None or decision.opportunistic else decision.profile,
        )
        self.by_key[task.job, task.task] = task
        return task

    def release(self, job: str, task: str) -> HeldTask | None:
        """Give its memory back."""
        self.waiting.pop((job, task), None)
        return self.by_key.pop((job, task), None)

    def submitted(self, job: str, task: str, amounts: KindAmounts) -> None:
        """A monotask of it is queued: less is still to come (Ursa §4.2.2)."""
        held = self.by_key.get((job, task))
        if held is not None:
            held.remaining = held.remaining.minus(amounts)

    def report(self) -> list[PlacedTask]:
        """All of them, for a master that has to rebuild its state. With those that have ended and of which it has not
        heard: it would look for another place for what nobody holds.
        """
        return [
            PlacedTask(
                job=held.job,
                stage=held.stage,
                task=held.task,
                origin=held.origin,
                remaining=held.remaining,
                memory_bytes=held.request.memory_bytes,
                opportunistic=held.opportunistic,
                command=held.request.command is not None,
                user=held.user,
            )
            for held in [*self.by_key.values(), *self._ended()]
        ]

    def registering(self, load: Load) -> Load:
        """Return the load that fits :meth:`report`: what has ended, and is reported as if it ran, is promised as well.

        The master takes what is promised beyond the reported tasks for others', until the first heartbeat.
        """
        ended_bytes = sum(held.request.memory_bytes for held in self._ended() if not held.opportunistic)
        return msgspec.structs.replace(load, promised_memory_bytes=load.promised_memory_bytes + ended_bytes)

    def _ended(self) -> list[HeldTask]:
        """Return the commands that have ended, of which the master has not heard."""
        return [held for key, held in self.unheard.items() if key not in self.by_key]

    def command_ended(self, held: HeldTask, ended: Ended) -> list[Instruction]:
        """A command is over: its memory is free, its origin will be told by the master. Until that has heard of it, it
        is kept, here and in the journal: what nobody answers for would run again.
        """
        self.release(held.job, held.task)
        held.ended = ended
        self.unheard[held.job, held.task] = held
        told = CommandEnded(job=held.job, task=held.task, origin=held.origin, ended=ended)
        return [Record(ROOM, journal_key(held.job, held.task), held), TellMaster("command_ended", told)]

    def end_heard(self, event: EndHeard, now: float) -> list[Instruction]:
        """The master has heard of the end of a command, which may have come back to this node meanwhile."""
        self.unheard.pop((event.job, event.task), None)
        if (event.job, event.task) in self.by_key:
            return []
        return [Record(ROOM, journal_key(event.job, event.task), None)]


def place(job: Job, stage: str, requests: list[TaskRequest], asked: Opportunistic) -> list[Instruction]:
    """A framework wants tasks placed. Tasks that it asked for before are answered again, as far as they got.

    Raises:
        RpcError: ``bad_request``: the same task twice in one request, or an amount that is no number from 0 on;
            ``refused``: see :func:`_speaks_for`.
    """
    _speaks_for(job)
    seen: set[str] = set()
    for index, request in enumerate(requests):
        if request.task in seen:
            raise bad_request(f"task {request.task!r} stands twice in one request", field=f"tasks[{index}].task")
        if not request.usage.is_valid():
            raise bad_request("expected non-negative numbers", field=f"tasks[{index}].usage")
        seen.add(request.task)
    instructions: list[Instruction] = []
    fresh: list[TaskRequest] = []
    opportunistic = job.record.allows(stage, asked)
    for request in requests:
        known = job.tasks.get(request.task)
        if known is None:
            job.tasks[request.task] = TaskHere(stage, request, opportunistic)
            fresh.append(request)
            continue
        if known.node:
            placed = TaskPlaced(job=job.record.job, task=request.task, node=known.node)
            instructions += _to_all(job, "task_placed", placed)
        if known.ended is not None:
            over = TaskEnded(job=job.record.job, task=request.task, node=known.node, ended=known.ended)
            instructions += _to_all(job, "task_ended", over)
    if fresh:
        ready = ReadyTasks(job=job.record.job, stage=stage, tasks=fresh, opportunistic=opportunistic)
        instructions.append(TellMaster("tasks_ready", ready))
    return instructions


def unplaced(job: Job) -> list[ReadyTasks]:
    """What still waits for a place, by stage, for a master that has to rebuild its state."""
    stages: dict[tuple[str, Opportunistic], list[TaskRequest]] = {}
    for task in job.tasks.values():
        if not task.node and task.ended is None:
            stages.setdefault((task.stage, task.opportunistic), []).append(task.request)
    return [
        ReadyTasks(job=job.record.job, stage=stage, tasks=requests, opportunistic=opportunistic)
        for (stage, opportunistic), requests in stages.items()
    ]


def awaited(job: Job) -> list[AwaitedTask]:
    """What was placed and has not ended as far as this origin was told, for a master that has to rebuild its state."""
    return [
        AwaitedTask(
            job=job.record.job,
            stage=task.stage,
            request=task.request,
            node=task.node,
            opportunistic=task.opportunistic,
        )
        for task in job.tasks.values()
        if task.node and task.ended is None
    ]


def tell(job: Job, decision: TellPlaced | TellEnded | TellStuck) -> list[Instruction]:
    """What the master says of a task of this origin."""
    match decision:
        case TellPlaced():
            return tell_placed(job, decision)
        case TellEnded():
            return tell_ended(job, decision)
        case TellStuck():
            stuck = TaskStuck(job=decision.job, task=decision.task, helper=decision.helper, node=decision.node)
            return _to_all(job, "task_stuck", stuck)  # task rescheduling (Elasecutor §III.D)


def tell_placed(job: Job, decision: TellPlaced) -> list[Instruction]:
    """The master placed a task of this origin."""
    known = _known(job, decision.task)
    if known is None or known.ended is not None:
        return []
    known.node = decision.node
    placed = TaskPlaced(job=decision.job, task=decision.task, node=decision.node)
    return _to_all(job, "task_placed", placed)


def tell_ended(job: Job, decision: TellEnded) -> list[Instruction]:
    """A task of this origin ended somewhere; it ends once.

    Once this is answered nobody else keeps the end. While the framework is away, or does not read, the journal does:
    after one more death of the agent the framework would have the task placed, and so run, again.
    """
    known = _known(job, decision.task)
    if known is None or known.ended is not None:
        return []
    known.node = known.node or decision.node
    known.ended = decision.ended
    over = TaskEnded(job=decision.job, task=decision.task, node=decision.node, ended=decision.ended)
    if job.sessions:
        return _to_all(job, "task_ended", over)
    return keep_end(job, decision.task)


def end_unread(jobs: Mapping[str, Job], event: EndUnread) -> list[Instruction]:
    """A framework that is there does not read how a task ended."""
    return keep_end(jobs[event.job], event.task) if event.job in jobs else []


def keep_end(job: Job, task: str) -> list[Instruction]:
    """Keep in the journal how a task ended, until its job is over."""
    known = job.tasks.get(task)
    if known is None or known.ended is None or task in job.kept_ends:
        return []
    job.kept_ends.add(task)
    kept = TaskEnd(job=job.record.job, task=task, node=known.node, ended=known.ended)
    return [Record(ENDS, journal_key(job.record.job, task), kept)]


def take_back_ends(jobs: Mapping[str, Job], ends: Iterable[TaskEnd]) -> list[Instruction]:
    """After a restart: frameworks that ask for these tasks again are told how they ended."""
    instructions: list[Instruction] = []
    for end in ends:
        job = jobs.get(end.job)
        if job is None:
            instructions.append(Record(ENDS, journal_key(end.job, end.task), None))
            continue
        request = TaskRequest(task=end.task, usage=KindAmounts())
        job.tasks[end.task] = TaskHere("", request, False, end.node, end.ended)
        job.kept_ends.add(end.task)
    return instructions


def forget_ends(job: Job) -> list[Instruction]:
    """The job is over."""
    return [Record(ENDS, journal_key(job.record.job, task), None) for task in sorted(job.kept_ends)]


def _known(job: Job, task: str) -> TaskHere | None:
    """A task of this origin. What the master says of one that only its framework still knows, because we were
    restarted, is kept for when the framework is back and asks again."""
    known = job.tasks.get(task)
    if known is None and job.recovered:
        request = TaskRequest(task=task, usage=KindAmounts())
        known = job.tasks[task] = TaskHere("", request, False)
    return known


def done(job: Job, names: list[str], held: HeldTasks) -> list[Instruction]:
    """A framework finished tasks that it executes itself: their memory is free, here and in the master's books."""
    instructions: list[Instruction] = []
    for name in names:
        known = job.tasks.get(name)
        if known is not None and known.ended is None:
            known.ended = Ended(by=EndedBy.EXIT, exit_status=0)
        if held.release(job.record.job, name) is not None:
            instructions.append(Record(ROOM, journal_key(job.record.job, name), None))
    instructions.append(TellMaster("tasks_done", TasksDone(job=job.record.job, tasks=names)))
    return instructions


def cancel(job: Job, names: list[str]) -> list[Instruction]:
    """A framework no longer wants tasks. Those not placed end here and now; the master withdraws the others.

    Raises:
        RpcError: ``refused``: see :func:`_speaks_for`.
    """
    _speaks_for(job)
    instructions: list[Instruction] = []
    for name in names:
        known = job.tasks.get(name)
        if known is None or known.ended is not None or known.node:
            continue
        known.ended = Ended(by=EndedBy.CANCELLED, reason="cancelled before it was placed")
        over = TaskEnded(job=job.record.job, task=name, node="", ended=known.ended)
        instructions += _to_all(job, "task_ended", over)
    instructions.append(TellMaster("tasks_cancelled", TasksCancelled(job=job.record.job, tasks=names)))
    return instructions


def _speaks_for(job: Job) -> None:
    """The master hears of a job's tasks from the node where it was registered, and from no other.

    Raises:
        RpcError: ``refused``: it is another.
    """
    if not job.record.here:
        reason = f"job {job.record.job!r} was registered on another node, which asks for its tasks"
        raise refused(reason, field="job", remedy="connect to that node's agent")


def _to_all(job: Job, method: str, params: TaskPlaced | TaskEnded | TaskStuck) -> list[Instruction]:
    return [Notify(session, method, params) for session in sorted(job.sessions)]
