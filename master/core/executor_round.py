"""A round's placement of executors by their profiles, heartbeat by heartbeat (Elasecutor §III.B, Algorithm 1)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from master.core import events as e
from master.core.drains import Drains
from master.core.executors import Executors
from master.core.forecasts import key_of
from master.core.free_capacity import Demand, FreeCapacity, Grid, capacities, free_capacity, within
from master.core.job import Job, Key, Task
from master.core.kept_room import KeptRoom, Room
from master.core.late_executors import LateExecutors, Tried
from master.core.membership import Membership
from master.core.node import Node
from master.core.outbox import Outbox
from master.core.settings import CurrentSettings
from master.core.snapshot import RoundSnapshot, Snapshots
from master.core.task_lifecycle import TaskLifecycle
from master.core.user_quotas import RoundQuotas, UserQuotas
from master.ordering import Ranking
from master.placement import Demands, Launch, WaitingExecutors
from master.placement.availability import lasting
from master.placement.executors import machines_with_room
from master.placement.workers import Mask
from penstock.model import Profile
from penstock.model.units import counted

#: A waiting executor and its forecast.
_Known = tuple[Job, Task, e.Forecasted]


@dataclass(slots=True)
class _WaitingExecutor:
    """A waiting executor; ``allowed`` (connected nodes) is None where every node is allowed."""

    rank: int
    job: Job
    task: Task
    forecast: e.Forecasted
    allowed: Mask | None
    demand: Demand
    number: int = 0


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
    # job → resources that all nodes lacked for its executors at that time
    _lacks: dict[str, str] = field(init=False, default_factory=dict)

    def place(self, ranking: Ranking, now: float, limits: RoundQuotas | None) -> None:
        """Place executors with a forecast on the nodes that have reported since they were last examined: first those
        that room is kept for, then others in the rest.

        All nodes are examined when a new executor waits, and once per heartbeat time, because availability also changes
        with time.
        """
        known, not_offered = self._forecast(ranking)
        snapshot = self._snapshots.take()
        if limits is not None:
            asking = [self._user_quotas.asking(snapshot, job, task) for job, task, _ in known]
            offered, over = limits.offer(self._late.in_line(asking))
            known = [one for one in known if (one[1].job, one[1].name) in offered]
            not_offered |= over
        nodes = [snapshot.node(worker) for worker in range(len(snapshot.rows))]
        everywhere = self._looks_everywhere(now)
        looked_at = [worker for worker, node in enumerate(nodes) if everywhere or node.executors_due]
        for worker in looked_at:
            nodes[worker].executors_due = False
        if not known or not looked_at:
            none = self._lacks if nodes else dict.fromkeys((job.job for job, _, _ in known), "no node is connected")
            self._record_waits(none | not_offered)
            if limits is not None:
                limits.settle(tried=False)
            if everywhere:
                self._late.keep({}, nodes, limits, now)
            return
        waiting = _waiting(snapshot, nodes, known)
        grid = Grid.of(
            self._settings.current, [one.demand.profile for one in waiting], elastic=self._executors.policy.elastic
        )
        placing = _ExecutorPlacement(self._executors, self._tasks, self._outbox, grid, waiting, now)
        room = free_capacity(grid, nodes, looked_at, placing.wanted, now)
        if self._kept.rooms:
            placing.in_their_room(room, self._kept.rooms)
            self._kept.settle()
            room.keep()
        left = placing.on(room)
        for key in placing.placed:
            self._late.placed(key, now)
        if limits is not None:
            limits.settle(tried=everywhere)
        if everywhere:
            first = {one.job.job: one for one in reversed(left)}
            self._lacks = {job: room.lacks(one.demand, one.allowed) for job, one in first.items()}
            self._record_waits(self._lacks | not_offered)
            tried = {(one.task.job, one.task.name): Tried(one.demand, one.allowed) for one in left}
            self._late.keep(tried, nodes, limits, now)

    def _looks_everywhere(self, now: float) -> bool:
        """Return whether this round examines all nodes."""
        everywhere = self._executors.news or now - self._looked_at >= self._settings.current.heartbeat_s
        self._executors.news = False
        if everywhere:
            self._looked_at = now
        return everywhere

    def say_what_waits(self) -> None:
        """Set the jobs' reasons for waiting executors, after regular placement, which covers other tasks."""
        for name, why in self._executors.waits.items():
            job = self._members.jobs.get(name)
            if job is not None and job.admitted and not job.waits:
                job.wait(why + self._drains.note(self._members.nodes) + self._kept.note())

    def _forecast(self, ranking: Ranking) -> tuple[list[_Known], dict[str, str]]:
        """Return the waiting executors with a forecast, in the order of their jobs, and request the missing
        forecasts. Also return, by job, why an executor that reserves its bounds for lack of a forecast fits on no
        node.
        """
        by_job: dict[str, list[Task]] = {}
        for task in self._executors.waiting.values():
            by_job.setdefault(task.job, []).append(task)
        known: list[_Known] = []
        too_large: dict[str, str] = {}
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

    def _record_waits(self, lacking: dict[str, str]) -> None:
        """Record by job why executors wait: the resources they lack, or a missing forecast."""
        waiting = Counter(task.job for task in self._executors.waiting.values())
        self._executors.waits = {
            job: f"{counted(count, 'executor', 'wait')}: {lacking.get(job, 'for what is forecast of them')}"
            for job, count in waiting.items()
        }


def _waiting(snapshot: RoundSnapshot, nodes: list[Node], known: list[_Known]) -> list[_WaitingExecutor]:
    """Return each executor with its demand on the nodes it may use. Executors with equal demands share one profile."""
    capacity = capacities(nodes)
    profiles: dict[tuple[int, tuple[str, ...]], Profile] = {}
    found: list[_WaitingExecutor] = []
    for rank, (job, task, forecast) in enumerate(known):
        assert task.request is not None
        names = task.request.nodes
        same = (id(forecast), names)
        if same not in profiles:
            own = [worker for worker, node in enumerate(nodes) if not names or node.name in names]
            profiles[same] = within(forecast.profile, capacity[own])
        demand = Demand.of(job, task, profiles[same])
        found.append(_WaitingExecutor(rank, job, task, forecast, snapshot.allowed(task), demand))
    return found


class _ExecutorPlacement:
    """Placement, one heartbeat after the other, until no executor fits."""

    def __init__(
        self,
        executors: Executors,
        tasks: TaskLifecycle,
        outbox: Outbox,
        grid: Grid,
        waiting: list[_WaitingExecutor],
        now: float,
    ) -> None:
        self._executors = executors
        self._tasks = tasks
        self._outbox = outbox
        self._now = now
        self._policy = executors.policy
        self._demands = Demands(grid.slots)
        self._pending = WaitingExecutors(self._demands)
        self.placed: list[Key] = []
        self._waiting: dict[Key, _WaitingExecutor] = {(one.task.job, one.task.name): one for one in waiting}
        numbers: dict[object, int] = {}
        for one in waiting:
            same = id(one.demand.profile), one.demand.outside_profile  # equal demands share one profile
            if same not in numbers:
                numbers[same] = self._demands.add(self._policy.demand(one.demand.over(grid)))
            one.number = numbers[same]

    @property
    def wanted(self) -> Mask:
        """Return which resources any executor wants (resources)."""
        return np.asarray(self._demands.peaks[: len(self._demands)].any(axis=0))

    def in_their_room(self, room: FreeCapacity, kept: Mapping[Key, Room]) -> None:
        """Place executors where the room that is kept for them is free."""
        machines = {node.name: machine for machine, node in enumerate(room.nodes)}
        here: dict[int, list[Key]] = {}
        for key, one in kept.items():
            machine = machines.get(one.node)
            if key in self._waiting and machine is not None:
                mask = self._waiting[key].allowed
                if mask is None or mask[room.workers[machine]]:
                    here.setdefault(machine, []).append(key)
        for machine, keys in here.items():
            self._heartbeat(room, machine, keys)

    def on(self, room: FreeCapacity) -> list[_WaitingExecutor]:
        """Place executors in the free capacity; return those not placed."""
        choosy: dict[int, list[Key]] = {}  # machine → executors restricted to some machines that include it
        for key, one in self._waiting.items():
            if one.allowed is None:
                self._pending.add(key, one.number, one.rank)
                continue
            for machine in np.flatnonzero(one.allowed[room.workers]).tolist():
                choosy.setdefault(machine, []).append(key)
        every = np.arange(len(room.machines))
        roomy = set(machines_with_room(room.machines, every, self._pending)) if len(self._pending) else set()
        for machine in sorted(roomy | choosy.keys()):
            self._heartbeat(room, machine, choosy.get(machine, []))
        return list(self._waiting.values())

    def _heartbeat(self, room: FreeCapacity, machine: int, choosy: list[Key]) -> None:
        """Place executors on one machine; restricted executors queue only at their allowed machines."""
        here = [key for key in choosy if key in self._waiting]
        for key in here:
            self._pending.add(key, self._waiting[key].number, self._waiting[key].rank)
        for launch in self._policy.heartbeat(room.machines, machine, self._pending):
            self._launch(room, launch)
        for key in here:
            if key in self._waiting:
                self._pending.remove(key, self._waiting[key].number)

    def _launch(self, room: FreeCapacity, launch: Launch) -> None:
        held = self._demands.of(launch.demand)
        room.machines.launch(launch.machine, launch.executor, held)
        key = self._pending.take(launch.demand)
        assert key == launch.executor and isinstance(key, tuple)
        one, node = self._waiting.pop(key), room.nodes[launch.machine]
        self.placed.append(key)
        demand = one.demand if self._policy.elastic else one.demand.at_most(held)
        self._executors.tell_stages(one.job, node.name)
        why = f"{launch.why}; {one.forecast.by}"
        self._tasks.assign(one.job, one.task, node, why, profile=demand.profile)
        node.held[key].follow(demand.profile, demand.outside_profile, self._now)
        self._outbox.explain(
            "executor placed", job=key[0], task=key[1], node=node.name, application=one.forecast.application,
            slots=demand.profile.slots, why=why,
        )  # fmt: skip
