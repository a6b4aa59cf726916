"""The job manager of one job of commands: events in, instructions out (Ursa §4.1.3, §4.2).

A task is *waiting* until all tasks before it succeeded. It is then ready, and its placement is requested together with
the tasks of its stage that became ready at the same time. Then it runs, and it ends exactly once. When a task does not
succeed, the tasks that wait for it are skipped; all others go on, unless ``fail_fast``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from penstock.model.container import MOST_STAGES, Ended, EndedBy
from penstock.model.work import Opportunistic, OpportunisticJob, StageProgress, opportunism
from penstock.opgraph.graph import TaskGraph


class TaskState(enum.StrEnum):
    """The state of a task."""

    WAITING = "waiting"  # for the tasks before it
    READY = "ready"  # waits for a node
    PLACED = "placed"  # waits for its slot there, or runs
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"  # by the user, or because another task failed (fail_fast)
    SKIPPED = "skipped"  # never requested: a task before it did not succeed

    @property
    def over(self) -> bool:
        """Return whether this state is final."""
        return self not in {TaskState.WAITING, TaskState.READY, TaskState.PLACED}


# ---------------------------------------------------------------- events


class AdmissionAwaited(msgspec.Struct, frozen=True):
    """The job is registered and not admitted yet; its host has this memory. ``opportunistic`` is the job's."""

    host_memory_bytes: int
    opportunistic: OpportunisticJob = None


class Started(msgspec.Struct, frozen=True):
    """The job was admitted; its first tasks may be placed."""


class TaskPlaced(msgspec.Struct, frozen=True):
    """A task got its node."""

    task: str
    node: str


class TaskEnded(msgspec.Struct, frozen=True):
    """A requested task ended."""

    task: str
    ended: Ended


class CancelRequested(msgspec.Struct, frozen=True):
    """The user cancels the job."""

    reason: str = "cancelled"


Event = AdmissionAwaited | Started | TaskPlaced | TaskEnded | CancelRequested


# ---------------------------------------------------------------- instructions


class PlaceStage(msgspec.Struct, frozen=True):
    """Ask for nodes for these ready tasks of one stage, in one request."""

    stage: str
    tasks: tuple[str, ...]
    opportunistic: Opportunistic


class CancelTasks(msgspec.Struct, frozen=True):
    """Cancel these tasks; the events of their ends still follow."""

    tasks: tuple[str, ...]


class TaskSettled(msgspec.Struct, frozen=True):
    """A task is over; sent once for each task."""

    task: str
    state: TaskState
    reason: str = ""


class JobOver(msgspec.Struct, frozen=True):
    """Every task is over; sent once."""

    succeeded: bool


Instruction = PlaceStage | CancelTasks | TaskSettled | JobOver


class JobManager:
    """The state machine of one job, driven by :meth:`handle`. Its other attributes without underscore may be read."""

    def __init__(self, graph: TaskGraph, *, fail_fast: bool = False) -> None:
        self.graph = graph
        self.states = dict.fromkeys(graph.tasks, TaskState.WAITING)
        self.nodes: dict[str, str] = {}
        self.ends: dict[str, Ended] = {}
        self.reasons: dict[str, str] = {}
        self._fail_fast = fail_fast
        self._missing = {name: len(set(task.after)) for name, task in graph.tasks.items()}
        self._left = len(graph.tasks)
        self._started = False
        self._stopping = ""
        self._after: dict[str, dict[str, None]] = {task.stage: {} for task in graph.tasks.values()}
        for task in graph.tasks.values():
            before = dict.fromkeys(graph.tasks[name].stage for name in task.after)
            self._after[task.stage].update({stage: None for stage in before if stage != task.stage})

    def progress(self) -> list[StageProgress]:
        """Return the progress for the master's orderings: all stages, including those that are not ready yet.

        With more than ``MOST_STAGES`` stages, those that are over are left out.
        """
        tasks, done, skipped = (dict.fromkeys(self._after, 0) for _ in range(3))
        for name, task in self.graph.tasks.items():
            tasks[task.stage] += 1
            done[task.stage] += self.states[name].over
            skipped[task.stage] += self.states[name] is TaskState.SKIPPED
        told = list(self._after)
        if len(told) > MOST_STAGES:
            told = [stage for stage in told if done[stage] < tasks[stage]][:MOST_STAGES]
        return [
            StageProgress(
                stage=one, tasks=tasks[one], done=done[one], skipped=skipped[one], after=list(self._after[one])
            )
            for one in told
        ]

    @property
    def over(self) -> bool:
        """Return whether every task is over."""
        return self._left == 0

    @property
    def tasks_over(self) -> int:
        """Return the number of tasks that are over."""
        return len(self.states) - self._left

    def handle(self, event: Event) -> list[Instruction]:
        """Return the instructions to carry out now, in order. Events about tasks that are over have no effect."""
        before = self._left
        match event:
            case AdmissionAwaited(host_memory_bytes, opportunistic):
                out = self._ask_for_large(host_memory_bytes, opportunistic)
            case Started():
                out = self._start()
            case TaskPlaced(task, node):
                out = self._placed(task, node)
            case TaskEnded(task, ended):
                out = self._ended(task, ended)
            case CancelRequested(reason):
                out = self._stop(reason)
        if before and not self._left:
            out.append(JobOver(all(state is TaskState.DONE for state in self.states.values())))
        return out

    def _ask_for_large(self, host_memory_bytes: int, opportunistic: OpportunisticJob) -> list[Instruction]:
        """Ask before the admission for ready tasks that this host cannot hold: only the master knows whether another
        node can, and it refuses them at once if none can. The job may wait long for memory that would not help them.
        Opportunistic tasks are not among them: they would not wait for the admission.
        """
        if self._started or self._stopping:
            return []
        tasks = self.graph.tasks
        large = [task for task in tasks.values() if task.memory_bytes > host_memory_bytes]
        return self._ask(
            task.name
            for task in large
            if not self._missing[task.name] and not opportunism(opportunistic, task.stage, task.opportunistic)
        )

    def _start(self) -> list[Instruction]:
        if self._started or self._stopping:
            return []
        self._started = True
        return self._ask(name for name, missing in self._missing.items() if not missing)

    def _placed(self, task: str, node: str) -> list[Instruction]:
        if self.states[task] is TaskState.READY:
            self.states[task] = TaskState.PLACED
            self.nodes[task] = node
        return []

    def _ended(self, task: str, ended: Ended) -> list[Instruction]:
        if self.states[task] not in {TaskState.READY, TaskState.PLACED}:
            return []
        self.ends[task] = ended
        if ended.ok:
            for dependent in self.graph.dependents[task]:
                self._missing[dependent] -= 1
            freed = [name for name in self.graph.dependents[task] if not self._missing[name]]
            return [self._settle(task, TaskState.DONE, ended.reason), *self._ask(freed)]
        state = TaskState.CANCELLED if self._stopping and ended.by is EndedBy.CANCELLED else TaskState.FAILED
        out: list[Instruction] = [self._settle(task, state, ended.reason)]
        if self._fail_fast:
            return out + self._stop(f"{task} did not succeed")
        return out + self._skip(self.graph.descendants(task), f"{task} did not succeed")

    def _stop(self, reason: str) -> list[Instruction]:
        if self._stopping:
            return []
        self._stopping = reason
        out = self._skip((name for name, state in self.states.items() if state is TaskState.WAITING), reason)
        asked = tuple(name for name, state in self.states.items() if not state.over)
        return [*out, CancelTasks(asked)] if asked else out

    def _ask(self, ready: Iterable[str]) -> list[Instruction]:
        """Request places for ready tasks, grouped by stage in the order of the graph."""
        stages: dict[tuple[str, Opportunistic], list[str]] = {}
        for name in ready:
            if self.states[name] is TaskState.WAITING:
                self.states[name] = TaskState.READY
                task = self.graph.tasks[name]
                stages.setdefault((task.stage, task.opportunistic), []).append(name)
        return [PlaceStage(stage, tuple(names), slack) for (stage, slack), names in stages.items()]

    def _skip(self, names: Iterable[str], reason: str) -> list[Instruction]:
        waiting = [name for name in names if self.states[name] is TaskState.WAITING]
        return [self._settle(name, TaskState.SKIPPED, reason) for name in waiting]

    def _settle(self, task: str, state: TaskState, reason: str = "") -> TaskSettled:
        self.states[task] = state
        self.reasons[task] = reason
        self._left -= 1
        return TaskSettled(task, state, reason)
