"""Regular work in a round: Algorithm 1, commands that may start ahead of others, and why the rest waits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from master.core.ahead import Ahead
from master.core.drains import Drains
from master.core.job import Job, Task
from master.core.kept_room import KeptRoom
from master.core.membership import Membership
from master.core.snapshot import RoundSnapshot, Snapshots
from master.core.task_lifecycle import TaskLifecycle
from master.core.user_quotas import HeldBack, RoundQuotas, UserQuotas
from master.core.waiting import WaitingStages
from master.ordering import Ranking
from master.placement import ExecutorTurns, Need, Placement, Stage, TaskPlacement, TaskTurns, place_in_turns, why_not
from penstock.model.units import counted

#: A waiting stage and its tasks' needs; summarized where the round need not examine them.
_Line = tuple[Job, str, "list[Need] | _Hopeless"]
#: The first of several tasks that cannot be placed in this round, and their number.
_Hopeless = tuple[Need, int]


@dataclass(frozen=True, slots=True)
class Placed:
    """The lines of tasks that a round examined, the placement used, and by job why tasks were not offered: their user
    is at a limit.
    """

    lines: list[_Line]
    placement: TaskPlacement
    over: dict[str, str]


@dataclass(eq=False, repr=False)
class RegularWork:
    """Places the tasks that allow regular room."""

    _drains: Drains
    _members: Membership
    _snapshots: Snapshots
    _waiting: WaitingStages
    _user_quotas: UserQuotas
    _tasks: TaskLifecycle
    _ahead: Ahead
    _kept: KeptRoom

    def place(
        self,
        hopeful: set[tuple[str, str]],
        ranking: Ranking | None,
        limits: RoundQuotas | None,
        executors: ExecutorTurns | None,
        *,
        looks_ahead: bool,
    ) -> Placed:
        """Place tasks that allow regular room, including those that also allow slack; executors have their turns.

        UBIS, Algorithm 1, gives slack only once "the scheduler cannot allocate any more regular containers".
        """
        # the order of submission breaks ties
        jobs = sorted(self._members.with_ready_tasks(), key=lambda job: (job.submitted_at, job.sequence))
        snapshot = self._snapshots.take()
        lines: list[_Line] = []
        offered, over = ({}, {}) if limits is None or ranking is None else self._offered(snapshot, ranking, limits)
        for job in jobs:
            job.wait("")
            tasks = None if limits is None else offered.get(job.job, {})
            lines += self._lines(snapshot, job, tasks, hopeful)
        stages = [
            Stage(job.job, name, needs)
            for job, name, needs in lines
            if isinstance(needs, list) and (job.job, name) in hopeful
        ]
        placement = snapshot.placement()
        if ranking is not None:
            ahead = partial(self._ahead.place, ranking, offered if limits is not None else None)
            started: list[tuple[int, Need]] = []
            if executors is not None:
                waiting = self._ahead.waiting() if looks_ahead else set()
                turns = TaskTurns(placement, stages, partial(self._assign, snapshot), waiting, ahead)
                started = place_in_turns(turns, ranking, executors)
            elif stages:
                self._assign(snapshot, placement.place(stages, ranking))
            if looks_ahead:
                started += ahead()
            if started:
                some = {need.job for _, need in started}
                lines = [line for line in lines if line[0].job not in some]
                for job in (self._members.jobs[name] for name in some):
                    lines += self._lines(snapshot, job, job.ready_for_regular(), hopeful)
        if limits is not None:
            limits.settle()
        return Placed(lines, placement, limits.why_over(over) if limits is not None else {})

    def _assign(self, snapshot: RoundSnapshot, placements: list[Placement]) -> None:
        for one in placements:
            job = self._members.jobs[one.need.job]
            self._tasks.assign(job, job.tasks[one.need.task], snapshot.node(one.worker), one.why)

    def _lines(
        self,
        snapshot: RoundSnapshot,
        job: Job,
        tasks: dict[str, list[Task]] | None,
        hopeful: set[tuple[str, str]],
    ) -> list[_Line]:
        """Return a job's stages with the needs of each task. Where none can be placed, return a summary of the last
        stage, which explains the job's wait; not where only some tasks are offered (``tasks``), nor where some may
        use slack.
        """
        if tasks is None and not job.some_opportunistic:
            stages = self._waiting.of(job)
            if not hopeful or not any((job.job, name) in hopeful for name in stages):
                return [(job, name, (snapshot.need(stages[name].first), stages[name].count)) for name in [*stages][-1:]]
        tasks = job.ready_for_regular() if tasks is None else tasks
        return [(job, name, [snapshot.need(task) for task in ready]) for name, ready in tasks.items()]

    def _offered(
        self, snapshot: RoundSnapshot, ranking: Ranking, limits: RoundQuotas
    ) -> tuple[dict[str, dict[str, list[Task]]], dict[str, HeldBack]]:
        """Return by job and stage the tasks within their users' limits, and by job what the others wait for."""
        ready = {job.job: job.ready_for_regular() for job in self._members.with_ready_tasks()}
        asking = [
            self._user_quotas.asking(snapshot, self._members.jobs[name], task)
            for name in ranking.order()
            for tasks in ready.get(name, {}).values()
            for task in tasks
        ]
        offered, over = limits.offer(asking)
        return {
            job: {
                stage: some
                for stage, tasks in stages.items()
                if (some := [task for task in tasks if (task.job, task.name) in offered])
            }
            for job, stages in ready.items()
        }, over

    def record_waits(self, placed: Placed) -> None:
        """Record why tasks without a place wait; the missing regular room is derived on demand."""
        for name, why in placed.over.items():
            job = self._members.jobs[name]
            if count := sum(len(tasks) for tasks in job.ready_for_regular().values()):
                job.wait(f"{counted(count, 'task', 'wait')}: {why}")
        note = self._drains.note(self._members.nodes) + self._kept.note()
        for job, stage, needs in placed.lines:
            if not isinstance(needs, list):
                job.wait(partial(_lacking, stage, *needs, placed.placement, note))
            elif left := [need for need in needs if not job.tasks[need.task].node]:
                job.wait(partial(_lacking, stage, left[0], len(left), placed.placement, note))


def _lacking(stage: str, first: Need, count: int, placement: TaskPlacement, note: str) -> str:
    wait = "waits" if count == 1 else "wait"
    return f"{counted(count, 'task')} of stage {stage} {wait} for a node: {why_not(first, placement)}{note}"
