"""Placed tasks, from both sides: those that frameworks here want placed (origin), and those placed here (node)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from agent.core import origin_journal
from agent.core.events import EndAcknowledged
from agent.core.instructions import Instruction, Record, SendToMaster
from agent.core.life_cycles import HELD
from agent.core.records import ContainerRecord, HeldTask, Job, TaskHere, journal_key
from penstock.model import Ended, EndedBy, KindAmounts, TaskRequest
from penstock.model.life_cycle import next_state
from penstock.model.work import Opportunistic
from penstock.wire.agent_api import TaskEnded, TaskPlaced, TaskStuck
from penstock.wire.job_end_api import JobAtEnd
from penstock.wire.jobs_api import MOST_FAILURES, TaskFailure
from penstock.wire.master_api import (
    Assign,
    AwaitedTask,
    CommandEnded,
    Load,
    PlacedTask,
    ReadyTasks,
    TasksCancelled,
    TellEnded,
    TellPlaced,
    TellStuck,
)

ROOM = "tasks"
_Key = tuple[str, str]


class HeldTasks:
    """The tasks placed on this node: each holds its memory until it is done."""

    def __init__(self) -> None:
        self.by_key: dict[_Key, HeldTask] = {}
        self.waiting: dict[_Key, float] = {}  # opportunistic commands waiting for slack, in order → since when
        self.unacknowledged: dict[_Key, HeldTask] = {}  # ended commands whose end the master has not acknowledged

    def __iter__(self) -> Iterator[HeldTask]:
        return iter(self.by_key.values())

    def of_job(self, job: str) -> list[HeldTask]:
        """Return a job's tasks on this node."""
        return [task for task in self.by_key.values() if task.job == job]

    def run_in(self, record: ContainerRecord) -> HeldTask | None:
        """Return the task whose present run is in this container; None: the container has none, or an earlier run."""
        held = self.by_key.get((record.job, record.task)) if record.task else None
        return held if held is not None and held.container == record.container else None

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

    def wait(self, held: HeldTask, now: float) -> None:
        """Let an opportunistic command wait for slack."""
        held.state = next_state(HELD, held.state, "waits")
        self.waiting[held.job, held.task] = now

    def start(self, held: HeldTask, container: str) -> Record:
        """Give a command its container; it is journaled before the container."""
        held.state = next_state(HELD, held.state, "started")
        held.container = container
        self.waiting.pop((held.job, held.task), None)
        return Record(ROOM, journal_key(held.job, held.task), held)

    def promote(self, held: HeldTask) -> bool:
        """Make an opportunistic task regular; return whether it waited for slack until now."""
        held.state = next_state(HELD, held.state, "promoted")
        held.opportunistic = False
        return self.waiting.pop((held.job, held.task), None) is not None

    def take_back(self, held: HeldTask, *, running: bool) -> None:
        """Hold a task of an earlier agent again; ``running``: its container outlived that agent."""
        if running:
            held.state = next_state(HELD, held.state, "found running")
        else:
            held.state, held.container = next_state(HELD, held.state, "found not running"), ""
        self.by_key[held.job, held.task] = held

    def release(self, job: str, task: str) -> HeldTask | None:
        """Free a task's memory."""
        self.waiting.pop((job, task), None)
        return self.by_key.pop((job, task), None)

    def submitted(self, job: str, task: str, amounts: KindAmounts) -> None:
        """Subtract a queued monotask from the task's remaining work (Ursa §4.2.2)."""
        held = self.by_key.get((job, task))
        if held is not None:
            held.remaining = held.remaining.minus(amounts)

    def report(self) -> list[PlacedTask]:
        """Return all tasks for a master that rebuilds its state, including ended ones that it has not acknowledged: it
        would place those again.
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
        """Return the load that fits :meth:`report`: memory of reported tasks that have ended counts as promised.

        Until the first heartbeat, the master attributes promised memory beyond the reported tasks to other work.
        """
        ended_bytes = sum(held.request.memory_bytes for held in self._ended() if not held.opportunistic)
        return msgspec.structs.replace(load, promised_memory_bytes=load.promised_memory_bytes + ended_bytes)

    def _ended(self) -> list[HeldTask]:
        """Return the ended commands that the master has not acknowledged."""
        return [held for key, held in self.unacknowledged.items() if key not in self.by_key]

    def command_ended(self, held: HeldTask, ended: Ended) -> list[Instruction]:
        """End a command: free its memory and tell the master, which tells its origin. The end is kept here and in the
        journal until the master acknowledges it; otherwise the command would run again.
        """
        self.release(held.job, held.task)
        held.state, held.ended = next_state(HELD, held.state, "ended"), ended
        self.unacknowledged[held.job, held.task] = held
        command_ended = CommandEnded(job=held.job, task=held.task, origin=held.origin, ended=ended)
        return [Record(ROOM, journal_key(held.job, held.task), held), SendToMaster(command_ended)]

    def end_acknowledged(self, event: EndAcknowledged, now: float) -> list[Instruction]:
        """Drop an acknowledged end of a command, which may have been placed here again meanwhile."""
        self.unacknowledged.pop((event.job, event.task), None)
        if (event.job, event.task) in self.by_key:
            return []
        return [Record(ROOM, journal_key(event.job, event.task), None)]


def unplaced(job: Job) -> list[ReadyTasks]:
    """Return the tasks waiting for a place, by stage, for a master that rebuilds its state."""
    stages: dict[tuple[str, Opportunistic], list[TaskRequest]] = {}
    for task in job.tasks.values():
        if task.state == "asked for":
            stages.setdefault((task.stage, task.opportunistic), []).append(task.request)
    return [
        ReadyTasks(job=job.record.job, stage=stage, tasks=requests, opportunistic=opportunistic)
        for (stage, opportunistic), requests in stages.items()
    ]


def awaited(job: Job) -> list[AwaitedTask]:
    """Return the placed tasks that have not ended as far as this origin knows, for a master that rebuilds its state.

    A task that the master named for an earlier agent is left out until its framework asks for it: its request is not
    known, and an empty one would replace the master's.
    """
    return [
        origin_journal.awaited_task(job, task) for task in job.tasks.values() if task.state == "placed" and task.stage
    ]


def cancelled(job: Job) -> TasksCancelled:
    """Return the placed tasks that are cancelled and have not ended, for a master that has dropped the cancellation."""
    names = [name for name, task in job.tasks.items() if task.cancelled and task.state == "placed"]
    return TasksCancelled(job=job.record.job, tasks=names)


def at_end(job: Job, why: str, cancelled_by: str) -> JobAtEnd:
    """Return the record of a job that ends now, for a master that has no record of it; the sender adds the time.

    ``why``: the reason if its framework did not end it. ``cancelled_by``: who cancelled it at the master. After a
    restart of the agent only a framework knows all tasks.
    """
    record = job.record
    ends = [(name, task, task.ended) for name, task in job.tasks.items() if task.ended is not None]
    cancelled = sum(ended.by is EndedBy.CANCELLED for _, _, ended in ends)
    failed = [end for end in ends if not end[2].ok and end[2].by is not EndedBy.CANCELLED]
    return JobAtEnd(
        name=record.name,
        user=record.user,
        submitted_at=record.submitted_at,
        reservation=record.reservation,
        stages=job.stages,
        undone=len(ends) < len(job.tasks) or (job.recovered and bool(why)),
        tasks_ended=len(ends),
        tasks_failed=len(failed),
        tasks_cancelled=cancelled,
        failures=[TaskFailure.of(name, task.stage, task.node, ended) for name, task, ended in failed[:MOST_FAILURES]],
        cancelled_by=cancelled_by,
    )


def apply(job: Job, decision: TellPlaced | TellEnded | TellStuck) -> list[Instruction]:
    """Pass on the master's message about a task of this origin: where it was placed, that it is stuck, how it ended.

    A task ends once. After its end is answered no other process keeps it. While the framework is away or does not read,
    it is journaled: otherwise, if the agent dies again, the framework would have the task placed, and run, again. So is
    the end of a task that the framework executes itself: it would wait for it for ever.
    """
    if isinstance(decision, TellStuck):
        stuck = TaskStuck(job=decision.job, task=decision.task, helper=decision.helper, node=decision.node)
        return job.notify(stuck)  # task rescheduling (Elasecutor §III.D)
    known = job.tasks.get(decision.task)
    if known is None and job.recovered:  # only its framework knows its tasks: messages are kept until it asks again
        known = job.tasks[decision.task] = TaskHere.of_earlier_agent(decision.task)
    if known is None or known.state == "ended":
        return []
    if isinstance(decision, TellPlaced):
        known.place(decision.node)
        placed = TaskPlaced(job=decision.job, task=decision.task, node=decision.node)
        return [*origin_journal.keep_awaited(job, decision.task), *job.notify(placed)]
    known.end(decision.ended, decision.node)
    over = TaskEnded(job=decision.job, task=decision.task, node=decision.node, ended=decision.ended)
    return origin_journal.ended(job, decision.task) + job.notify(over)
