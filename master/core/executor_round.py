"""The executors that a round may place, and on which nodes; why the others wait, from round to round."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from master.core import events as e
from master.core.drains import Drains
from master.core.executor_placement import Examined, ExecutorPlacement, WaitingExecutor
from master.core.executors import Executors, Reason
from master.core.forecasts import key_of
from master.core.free_capacity import Demand, largest_first, within
from master.core.job import Job, Key, Task
from master.core.kept_room import KeptRoom
from master.core.late_executors import LateExecutors
from master.core.membership import Membership
from master.core.outbox import Outbox
from master.core.settings import CurrentSettings
from master.core.snapshot import RoundSnapshot, Snapshots
from master.core.task_lifecycle import TaskLifecycle
from master.core.user_quotas import HeldBack, RoundQuotas, UserQuotas, WaitingTask
from master.ordering import Ranking
from master.placement.availability import lasting
from master.placement.drr import Floats
from penstock.model.units import counted

#: A waiting executor and its forecast.
_Known = tuple[Job, Task, e.Forecasted]


@dataclass(eq=False, repr=False)
class ExecutorRound:
    """Places the waiting executors on nodes that have reported."""

    _settings: CurrentSettings
    _drains: Drains
    _members: Membership
    _outbox: Outbox
    _snapshots: Snapshots
    _executors: Executors
    _user_quotas: UserQuotas
    _tasks: TaskLifecycle
    _kept: KeptRoom
    _late: LateExecutors
    _looked_at: float = field(init=False, default=-math.inf)  # when all nodes were examined, monotonic
    # executors that fitted at the last round's start, found no place, and kept their user's limit from its other tasks
    _forestalled: set[Key] = field(init=False, default_factory=set)

    def begin(self, ranking: Ranking, now: float, limits: RoundQuotas | None) -> ExecutorPlacement | None:
        """Place executors where the room that is kept for them is free; return the others, for their turns in the order
        of the jobs. None: there is none to be placed.

        Executors with a forecast are placed on the nodes that have reported since they were last examined. All nodes
        are examined when a new executor waits, and once per heartbeat time, because availability also changes with
        time. An executor that fits nowhere leaves its user's limit to that user's other tasks.
        """
        known, not_offered = self._forecast(ranking)
        snapshot = self._snapshots.take()
        over: dict[str, HeldBack] = {}
        if limits is not None:
            known, over = self._within(limits, snapshot, known, not_offered)
        nodes, everywhere = snapshot.nodes(), self._looks_everywhere(now)
        looked_at = [worker for worker, node in enumerate(nodes) if node.executors_due]
        for worker in looked_at:
            nodes[worker].executors_due = False
        if everywhere:
            looked_at = [*range(len(nodes))]
        if not known or not looked_at:
            none = self._executors.lacks
            if not nodes:
                none = dict.fromkeys((job.job for job, _, _ in known), "no node is connected")
            if limits is not None:
                limits.settle(tried=False)
                not_offered |= limits.why_over(over)
            self._record_waits(none | not_offered)
            if everywhere:
                self._late.keep({}, snapshot.rows, limits, now)
            return None
        examined = Examined(snapshot, nodes, looked_at, everywhere, not_offered, over)
        placing = ExecutorPlacement(
            self._executors, self._tasks, self._outbox, self._settings.current, _waiting(snapshot, known),
            examined, now,
        )  # fmt: skip
        if self._kept.rooms:
            placing.in_their_room(self._kept.rooms)
            self._kept.settle()
        placing.open()
        if limits is not None:
            limits.settle(tried=everywhere, later=placing.fitting())
        return placing

    def _within(
        self, limits: RoundQuotas, snapshot: RoundSnapshot, known: list[_Known], not_offered: dict[str, Reason]
    ) -> tuple[list[_Known], dict[str, HeldBack]]:
        """Return the executors within their users' limits, and by job what the others wait for. Those that sit a round
        out join ``not_offered``.
        """
        forestalled, self._forestalled = self._forestalled - self._kept.rooms.keys(), set()
        asking: list[WaitingTask] = []
        for job, task, _ in known:
            if (task.job, task.name) in forestalled:
                not_offered[job.job] = self._executors.lacks.get(
                    job.job, f"it is the turn of other tasks of user {job.user}"
                )
            else:
                asking.append(self._user_quotas.asking(snapshot, job, task))
        offered, over = limits.offer(self._late.in_line(asking))
        return [one for one in known if (one[1].job, one[1].name) in offered], over

    def end(self, placing: ExecutorPlacement, limits: RoundQuotas | None, over: Collection[str]) -> None:
        """After placement, record why executors wait, and keep room for one that has waited long. ``over``: jobs with
        other tasks that their user's limit held back. An executor that kept it from them in vain leaves it to them in
        the next round.
        """
        examined, now, jobs = placing.examined, placing.now, self._members.jobs
        users = {jobs[job].user for job in over}
        vain = placing.fitting() - placing.placed.keys() if users else set()
        self._forestalled = {key for key in vain if jobs[key[0]].user in users}
        for key in placing.placed:
            self._late.placed(key, now)
        if examined.everywhere:
            self._executors.lacks = placing.lacks(self._snapshots)
            over_limit = limits.why_over(examined.over) if limits is not None else {}
            self._record_waits({**self._executors.lacks, **examined.not_offered, **over_limit})
            self._late.keep(placing.tried(), examined.snapshot.rows, limits, now)

    def _looks_everywhere(self, now: float) -> bool:
        """Return whether this round examines all nodes."""
        everywhere = self._executors.news or now - self._looked_at >= self._settings.current.heartbeat_s
        self._executors.news = False
        if everywhere:
            self._looked_at = now
        return everywhere

    def say_what_waits(self) -> None:
        """Set the jobs' reasons for waiting executors, after regular placement, which covers other tasks."""
        note = self._drains.note(self._members.nodes) + self._kept.note()
        for name, why in self._executors.waits.items():
            job = self._members.jobs.get(name)
            if job is not None and job.admitted and not job.waits:
                job.wait(partial(_noted, why, note))

    def _forecast(self, ranking: Ranking) -> tuple[list[_Known], dict[str, Reason]]:
        """Return the waiting executors with a forecast, in the order of their jobs, and request the missing
        forecasts. Also return, by job, why an executor that reserves its bounds for lack of a forecast fits on no
        node.
        """
        by_job: dict[str, list[Task]] = {}
        for task in self._executors.waiting.values():
            by_job.setdefault(task.job, []).append(task)
        known: list[_Known] = []
        too_large: dict[str, Reason] = {}
        for name in ranking.order():
            job = self._members.jobs[name]
            for task in by_job.get(name, ()) if job.admitted else ():
                forecast = self._executors.forecasts.of(key_of(job, task))
                if forecast is None:
                    self._executors.ask(job, task)
                elif lasting(forecast.profile) and (reason := self._snapshots.unfit(task)):
                    too_large[name] = reason
                else:
                    known.append((job, task, forecast))
        return known, too_large

    def _record_waits(self, lacking: dict[str, Reason]) -> None:
        """Record by job why executors wait: the resources they lack, or a missing forecast."""
        waiting = Counter(task.job for task in self._executors.waiting.values())
        self._executors.waits = {
            job: partial(_why, count, lacking.get(job, "for what is forecast of them"))
            for job, count in waiting.items()
        }


def _why(count: int, reason: Reason) -> str:
    """Return why so many executors of a job wait."""
    return f"{counted(count, 'executor', 'wait')}: {reason if isinstance(reason, str) else reason()}"


def _noted(why: Callable[[], str], note: str) -> str:
    return why() + note


def _waiting(snapshot: RoundSnapshot, known: list[_Known]) -> list[WaitingExecutor]:
    """Return each executor with its demand on the nodes it may use. Executors with equal demands share one profile."""
    every = snapshot.executor_capacity()
    capacity: dict[tuple[str, ...], Floats] = {}  # of the nodes of these names
    demands: dict[tuple[int, tuple[str, ...], int], Demand] = {}
    found: list[WaitingExecutor] = []
    for rank, (job, task, forecast) in enumerate(known):
        request = task.request
        assert request is not None
        assert request.command is not None
        names = request.nodes
        if names not in capacity:
            capacity[names] = largest_first(every[snapshot.named(names)] if names else every)
        same = id(forecast), names, request.command.network_bytes_per_s
        if same not in demands:
            demands[same] = Demand.of(job, task, within(forecast.profile, capacity[names]))
        found.append(WaitingExecutor(rank, job, task, forecast, snapshot.allowed(task), demands[same]))
    return found
