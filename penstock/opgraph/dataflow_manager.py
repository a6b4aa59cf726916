"""The job manager of one dataflow: events in, instructions out (Ursa §4.1.3 "Task execution flow", §4.2.1).

A task is ready when all tasks that it takes data from are complete. Its placement is then requested together with the
tasks of its stage that became ready at the same time. On a placed task's node each monotask is to run as soon as the
monotasks before it are done. Every monotask is requested once, after its inputs exist; a failed monotask ends the job.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.model.resources import KindAmounts, ResourceKind
from penstock.model.units import counted
from penstock.opgraph.checking import Input
from penstock.opgraph.metadata import (
    Made,
    Metadata,
    TaskEstimate,
    estimate,
    heaviest_place,
    memory_bytes,
    memory_to_input,
)
from penstock.opgraph.ops import Dependency, Take
from penstock.opgraph.planning import Plan
from penstock.opgraph.progress import FlowProgress
from penstock.wire.agent_api import StageProgress

# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class FlowStarted:
    """The job was admitted."""


@dataclass(frozen=True, slots=True)
class FlowTaskPlaced:
    """A task got its node; "" if any will do."""

    task: int
    node: str


@dataclass(frozen=True, slots=True)
class MonotaskCompleted:
    """A monotask succeeded; ``made`` has one partition for each of its operation's ``outputs``."""

    monotask: int
    made: tuple[Made, ...]


@dataclass(frozen=True, slots=True)
class MonotaskFailed:
    """A monotask failed or will fail."""

    monotask: int
    reason: str


@dataclass(frozen=True, slots=True)
class FlowCancelled:
    """The job was cancelled: its result is not wanted any more."""

    reason: str = "cancelled"


FlowEvent = FlowStarted | FlowTaskPlaced | MonotaskCompleted | MonotaskFailed | FlowCancelled

# ---------------------------------------------------------------- instructions


@dataclass(frozen=True, slots=True)
class TaskDemand:
    """A ready task without a node: estimates in bytes (§4.2.1); ``nodes`` restricts the choice, empty means any."""

    task: int
    name: str
    usage: KindAmounts
    memory_bytes: int
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlaceTasks:
    """Ask for nodes for these ready tasks of one stage, in one request."""

    stage: str
    demands: tuple[TaskDemand, ...]


@dataclass(frozen=True, slots=True)
class RunMonotask:
    """Run a ready monotask on the node of its task ("" for any); ``input_bytes`` is the size of its input."""

    monotask: int
    kind: ResourceKind
    input_bytes: int
    node: str
    stage: str
    task: str


@dataclass(frozen=True, slots=True)
class TaskComplete:
    """A task is complete: its node can release the task's resources."""

    task: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Delete this partition, which no monotask will read again."""

    version: int
    partition: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """Cancel these requested monotasks and tasks, because the job failed or was cancelled."""

    monotasks: tuple[int, ...]
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FlowOver:
    """The job is over; the last instruction."""

    succeeded: bool
    reason: str = ""


FlowInstruction = PlaceTasks | RunMonotask | TaskComplete | Drop | Abandon | FlowOver


class _TaskState(enum.Enum):
    WAITING = enum.auto()  # for the tasks before it
    READY = enum.auto()  # for a node
    PLACED = enum.auto()
    COMPLETE = enum.auto()


class DataflowManager:
    """The state machine of one dataflow, driven by :meth:`handle`. ``metadata`` may be read."""

    def __init__(
        self, plan: Plan, *, job_memory_bytes: int = 0, learned_memory_to_input: Mapping[str, float] | None = None
    ) -> None:
        """``job_memory_bytes`` is M(j), 0 without an estimate; ``learned_memory_to_input`` is stage name → m2i."""
        self.plan = plan
        self.metadata = Metadata(plan)
        self.over = False
        self._job_memory_bytes = job_memory_bytes
        self._learned = dict(learned_memory_to_input or {})
        self._progress = FlowProgress(plan, self.metadata)
        self._started = False
        self._states = [_TaskState.WAITING] * len(plan.tasks)
        self._nodes = [""] * len(plan.tasks)
        self._running: dict[int, None] = {}
        self._ready: dict[int, TaskEstimate] = {}  # ready tasks without a node
        self._left_of_task = [len(task.monotasks) for task in plan.tasks]
        self._left_of_op = [op.partitions for op in plan.ops]
        self._links_from: dict[int, list[int]] = {}
        for index, link in enumerate(plan.links):
            self._links_from.setdefault(link.before, []).append(index)
        self._waits = [len(plan.ops[monotask.op].after) for monotask in plan.monotasks]
        self._task_waits = [0] * len(plan.tasks)
        self._tasks_after: dict[int, list[int]] = {}  # one to one
        self._stages_after: dict[int, list[int]] = {}  # all tasks of a stage before all tasks of another
        self._count_task_waits()
        self._readers = self._count_readers()

    def estimated_memory_bytes(self) -> int:
        """Return M(j) for admission (§4.2.2): the given value, or the need of the tasks that are ready at the start."""
        if self._job_memory_bytes:
            return self._job_memory_bytes
        return sum(
            memory_bytes(estimate(self.plan, self.metadata, task), memory_to_input(self.plan, task, self._learned))
            for task in self.plan.tasks
            if not self._task_waits[task.index]
        )

    def progress(self) -> list[StageProgress]:
        """Return the progress for the master's orderings: all stages, with the remaining work as far as known."""
        return self._progress.stages()

    def handle(self, event: FlowEvent) -> list[FlowInstruction]:
        """Return the instructions to carry out now, in order. Repeated and late events have no effect."""
        if self.over:
            return []
        match event:
            case FlowStarted():
                return self._start()
            case FlowTaskPlaced(task, node):
                return self._placed(task, node)
            case MonotaskCompleted(monotask, made):
                return self._completed(monotask, made)
            case MonotaskFailed(monotask, reason):
                return self._stop(reason) if monotask in self._running else []
            case FlowCancelled(reason):
                return self._stop(reason)

    # ------------------------------------------------------------ events

    def _start(self) -> list[FlowInstruction]:
        if self._started:
            return []
        self._started = True
        return self._ask(task.index for task in self.plan.tasks if not self._task_waits[task.index])

    def _placed(self, task: int, node: str) -> list[FlowInstruction]:
        if self._states[task] is not _TaskState.READY:
            return []
        self._states[task] = _TaskState.PLACED
        self._nodes[task] = node
        del self._ready[task]
        return [self._run(index) for index in self.plan.tasks[task].monotasks if not self._waits[index]]

    def _completed(self, index: int, made: tuple[Made, ...]) -> list[FlowInstruction]:
        if index not in self._running:
            return []
        monotask = self.plan.monotasks[index]
        op = self.plan.ops[monotask.op]
        if len(made) != len(op.outputs):
            raise ValueError(f"{op.name!r} makes {counted(len(op.outputs), 'dataset')}, not {len(made)}")
        del self._running[index]
        for version, one in zip(op.outputs, made, strict=True):
            self.metadata.record(version, monotask.partition, one, self._nodes[monotask.task])
        self._left_of_op[op.index] -= 1
        out = self._release(op.index, monotask.partition)
        out += self._read_by(op.index, monotask.partition)
        self._left_of_task[monotask.task] -= 1
        if not self._left_of_task[monotask.task]:
            out += self._complete_task(monotask.task)
        return out

    def _stop(self, reason: str) -> list[FlowInstruction]:
        self.over = True
        held = {_TaskState.READY, _TaskState.PLACED}
        tasks = tuple(task for task, state in enumerate(self._states) if state in held)
        out: list[FlowInstruction] = [Abandon(tuple(self._running), tasks)] if tasks else []
        return [*out, FlowOver(succeeded=False, reason=reason)]

    # ------------------------------------------------------------ inside

    def _release(self, op: int, partition: int) -> list[FlowInstruction]:
        """Return the monotasks that waited for this one and can run now; others belong to tasks without a node."""
        freed: list[int] = []
        for link in (self.plan.links[index] for index in self._links_from.get(op, ())):
            first = self.plan.first[link.after]
            if link.dependency is Dependency.ASYNC:
                freed.append(first + partition)
            elif not self._left_of_op[op]:
                freed += range(first, first + self.plan.ops[link.after].partitions)
        out: list[FlowInstruction] = []
        for index in freed:
            self._waits[index] -= 1
            placed = self._states[self.plan.monotasks[index].task] is _TaskState.PLACED
            if placed and not self._waits[index]:
                out.append(self._run(index))
        return out

    def _run(self, index: int) -> RunMonotask:
        monotask = self.plan.monotasks[index]
        task, op = self.plan.tasks[monotask.task], self.plan.ops[monotask.op]
        self._running[index] = None
        return RunMonotask(
            monotask=index,
            kind=op.kind,
            input_bytes=self.metadata.input_bytes(op, monotask.partition),
            node=self._nodes[task.index],
            stage=self.plan.stages[task.stage].name,
            task=task.name,
        )

    def _complete_task(self, task: int) -> list[FlowInstruction]:
        self._states[task] = _TaskState.COMPLETE
        stage = self.plan.tasks[task].stage
        left_of_stage = self._progress.complete(task)
        freed = list(self._tasks_after.get(task, ()))
        if not left_of_stage:
            freed += [other for after in self._stages_after.get(stage, ()) for other in self.plan.stages[after].tasks]
        for other in freed:
            self._task_waits[other] -= 1
        ready = sorted({other for other in freed if not self._task_waits[other]})
        out = [TaskComplete(task), *self._ask(ready)]
        if self._progress.over:
            self.over = True
            out.append(FlowOver(succeeded=True))
        return out

    def _ask(self, tasks: Iterable[int]) -> list[FlowInstruction]:
        """Request places for ready tasks, grouped by stage. Their share r is of all ready tasks without a node."""
        new = list(tasks)
        for index in new:
            self._states[index] = _TaskState.READY
            self._ready[index] = estimate(self.plan, self.metadata, self.plan.tasks[index])
            self._progress.ready(self._ready[index])
        all_bytes = sum(one.input_bytes for one in self._ready.values())
        stages: dict[int, list[TaskDemand]] = {}
        for task in (self.plan.tasks[index] for index in new):
            known = self._ready[task.index]
            ratio = memory_to_input(self.plan, task, self._learned)
            place = heaviest_place(self.plan, self.metadata, task)
            memory = memory_bytes(known, ratio, all_bytes, self._job_memory_bytes)
            nodes = (place,) if place else ()
            stages.setdefault(task.stage, []).append(TaskDemand(task.index, task.name, known.usage, memory, nodes))
        return [PlaceTasks(self.plan.stages[stage].name, tuple(demands)) for stage, demands in stages.items()]

    def _count_task_waits(self) -> None:
        plan = self.plan
        for link in plan.links:
            if not link.crosses:
                continue
            if link.dependency is Dependency.SYNC:
                before = plan.tasks[plan.monotask(link.before, 0).task].stage
                after = plan.tasks[plan.monotask(link.after, 0).task].stage
                if before == after:  # a stage of one task: the order of its monotasks suffices
                    continue
                self._stages_after.setdefault(before, []).append(after)
                for task in plan.stages[after].tasks:
                    self._task_waits[task] += 1
                continue
            for partition in range(plan.ops[link.after].partitions):
                one, other = plan.monotask(link.before, partition).task, plan.monotask(link.after, partition).task
                if one != other:  # within a task the order of its monotasks suffices
                    self._tasks_after.setdefault(one, []).append(other)
                    self._task_waits[other] += 1

    def _count_readers(self) -> dict[tuple[int, int], int]:
        """Return the number of readers of each created partition: monotasks, plus one for a result."""
        counts: dict[tuple[int, int], int] = {}
        for version in self.plan.writers:
            for partition in self.plan.partitions(version):
                counts[version, partition] = int(version in self.plan.results)
        for op in self.plan.ops:
            for read in op.inputs:
                for partition in range(op.partitions):
                    for one in self._partitions_read(read, partition):
                        if (read.version, one) in counts:
                            counts[read.version, one] += 1
        return counts

    def _partitions_read(self, read: Input, partition: int) -> Iterable[int]:
        return (partition,) if read.take is Take.OWN else self.plan.partitions(read.version)

    def _read_by(self, op: int, partition: int) -> list[FlowInstruction]:
        """Return a Drop for each partition that this monotask was the last to read."""
        out: list[FlowInstruction] = []
        for read in self.plan.ops[op].inputs:
            for one in self._partitions_read(read, partition):
                if (read.version, one) in self._readers:
                    self._readers[read.version, one] -= 1
                    if not self._readers[read.version, one]:
                        out.append(Drop(read.version, one))
        return out
