"""A round's placement of executors by their profiles, heartbeat by heartbeat (Elasecutor §III.B, Algorithm 1)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from master.core import events as e
from master.core.drains import Drains
from master.core.executors import Executors
from master.core.forecasts import key_of
from master.core.free_capacity import Demand, Grid, capacities, free_capacity, within
from master.core.job import Job, Key, Task
from master.core.kept_room import KeptRoom, Room
from master.core.late_executors import LateExecutors, Tried
from master.core.membership import Membership
from master.core.node import Node
from master.core.outbox import Outbox
from master.core.settings import CurrentSettings, MasterSettings
from master.core.snapshot import RoundSnapshot, Snapshots
from master.core.task_lifecycle import TaskLifecycle
from master.core.user_quotas import HeldBack, RoundQuotas, UserQuotas, WaitingTask
from master.ordering import Ranking
from master.placement import Demands, Launch, Need, WaitingExecutors
from master.placement.availability import lasting
from master.placement.drr import Ints
from master.placement.executors import fits_somewhere, machines_that_fit, machines_with_room
from master.placement.workers import MEMORY, Mask
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
    # executors that fitted at the last round's start, found no place, and kept their user's limit from its other tasks
    _forestalled: set[Key] = field(init=False, default_factory=set)
    # job → resources that all nodes lacked for its executors at that time
    _lacks: dict[str, str] = field(init=False, default_factory=dict)

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
        nodes = [snapshot.node(worker) for worker in range(len(snapshot.rows))]
        everywhere = self._looks_everywhere(now)
        looked_at = [worker for worker, node in enumerate(nodes) if everywhere or node.executors_due]
        for worker in looked_at:
            nodes[worker].executors_due = False
        if not known or not looked_at:
            none = self._lacks if nodes else dict.fromkeys((job.job for job, _, _ in known), "no node is connected")
            if limits is not None:
                limits.settle(tried=False)
                not_offered |= limits.why_over(over)
            self._record_waits(none | not_offered)
            if everywhere:
                self._late.keep({}, nodes, limits, now)
            return None
        examined = _Examined(nodes, looked_at, everywhere, not_offered, over)
        placing = ExecutorPlacement(
            self._executors, self._tasks, self._outbox, self._settings.current, _waiting(snapshot, nodes, known),
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
        self, limits: RoundQuotas, snapshot: RoundSnapshot, known: list[_Known], not_offered: dict[str, str]
    ) -> tuple[list[_Known], dict[str, HeldBack]]:
        """Return the executors within their users' limits, and by job what the others wait for. Those that sit a round
        out join ``not_offered``.
        """
        forestalled, self._forestalled = self._forestalled - self._kept.rooms.keys(), set()
        asking: list[WaitingTask] = []
        for job, task, _ in known:
            if (task.job, task.name) in forestalled:
                not_offered[job.job] = self._lacks.get(job.job, f"it is the turn of other tasks of user {job.user}")
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
            self._lacks = placing.lacks()
            over_limit = limits.why_over(examined.over) if limits is not None else {}
            self._record_waits(self._lacks | examined.not_offered | over_limit)
            self._late.keep(placing.tried(), examined.nodes, limits, now)

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


@dataclass(frozen=True, slots=True)
class _Examined:
    """The nodes of a round, and the numbers of those that it examines. ``not_offered``: by job, why executors may not
    be placed on any; ``over``: by job, what executors over their user's limit wait for.
    """

    nodes: list[Node]
    workers: list[int]
    everywhere: bool
    not_offered: dict[str, str]
    over: dict[str, HeldBack]


class ExecutorPlacement:
    """A round's placement of executors: in each turn, one heartbeat after the other, until none of its jobs' fits; or,
    where shares decide, one executor after the other.
    """

    def __init__(
        self,
        executors: Executors,
        tasks: TaskLifecycle,
        outbox: Outbox,
        settings: MasterSettings,
        waiting: list[_WaitingExecutor],
        examined: _Examined,
        now: float,
    ) -> None:
        self.examined, self.now = examined, now
        self.placed: dict[Key, tuple[int, Need]] = {}  # the worker, and what is taken there
        self._executors = executors
        self._tasks = tasks
        self._outbox = outbox
        self._policy = executors.policy
        grid = Grid.of(settings, [one.demand.profile for one in waiting], elastic=self._policy.elastic)
        self._demands = Demands(grid.slots)
        self._pending = WaitingExecutors(self._demands)
        self._waiting: dict[Key, _WaitingExecutor] = {(one.task.job, one.task.name): one for one in waiting}
        self._hopeful: dict[str, list[Key]] = {}  # by job, the executors that some machine has room for
        self._left: dict[str, Iterator[Key]] = {}  # by job, those of them that :meth:`next_of` has yet to try
        self._begin: dict[int, int] = {}  # by demand, the first machine that may have room: others had none
        numbers: dict[object, int] = {}
        for one in waiting:
            same = id(one.demand.profile), one.demand.outside_profile  # equal demands share one profile
            if same not in numbers:
                numbers[same] = self._demands.add(self._policy.demand(one.demand.over(grid)))
            one.number = numbers[same]
        wanted = np.asarray(self._demands.peaks[: len(self._demands)].any(axis=0))
        self._room = free_capacity(grid, examined.nodes, examined.workers, wanted, now)
        self._machines = {worker: machine for machine, worker in enumerate(examined.workers)}

    @property
    def jobs(self) -> list[str]:
        """Return the jobs with an executor that some machine has room for."""
        return list(self._hopeful)

    @property
    def one_by_one(self) -> bool:
        """Return whether executors may be placed one by one: the policy places one wherever it fits. Others compare
        all machines, or draw one, at each heartbeat.
        """
        return self._policy.elastic

    def in_their_room(self, kept: Mapping[Key, Room]) -> None:
        """Place executors where the room that is kept for them is free."""
        machines = {node.name: machine for machine, node in enumerate(self._room.nodes)}
        here: dict[int, list[Key]] = {}
        for key, one in kept.items():
            machine = machines.get(one.node)
            if key in self._waiting and machine is not None:
                mask = self._waiting[key].allowed
                if mask is None or mask[self._room.workers[machine]]:
                    here.setdefault(machine, []).append(key)
        for machine, keys in here.items():
            self._heartbeat(machine, keys)

    def open(self) -> None:
        """Leave kept room to those it is kept for, and find the executors that fit in the rest. As what is free only
        shrinks within a round, the others fit nowhere in it.
        """
        self._room.keep()
        machines, every = self._room.machines, np.arange(len(self._room.machines))
        known: dict[int, bool] = {}
        for key, one in self._waiting.items():
            if one.allowed is not None:
                own = np.flatnonzero(one.allowed[self._room.workers])
                fits = fits_somewhere(machines, own, self._demands, one.number)
            elif one.number in known:
                fits = known[one.number]
            else:
                fits = known[one.number] = fits_somewhere(machines, every, self._demands, one.number)
            if fits:
                self._hopeful.setdefault(key[0], []).append(key)

    def fitting(self) -> set[Key]:
        """Return the executors that some machine has had room for."""
        return {key for keys in self._hopeful.values() for key in keys}

    def turn(self, jobs: Sequence[str]) -> list[tuple[int, Need]]:
        """Place executors of these jobs; return the worker of each and what it takes there."""
        before, self._pending = len(self.placed), WaitingExecutors(self._demands)
        choosy: dict[int, list[Key]] = {}  # machine → executors restricted to some machines that include it
        for key in (key for job in jobs for key in self._hopeful[job]):
            one = self._waiting[key]
            if one.allowed is None:
                self._pending.add(key, one.number, one.rank)
                continue
            for machine in np.flatnonzero(one.allowed[self._room.workers]).tolist():
                choosy.setdefault(machine, []).append(key)
        every = np.arange(len(self._room.machines))
        roomy = set(machines_with_room(self._room.machines, every, self._pending)) if len(self._pending) else set()
        for machine in sorted(roomy | choosy.keys()):
            if machine in choosy or len(self._pending):
                self._heartbeat(machine, choosy.get(machine, []))
        return list(self.placed.values())[before:]

    def next_of(self, job: str) -> tuple[int, Need] | None:
        """Place the next executor of this job that fits; return its worker and what it takes there. None: none fits."""
        machines = self._room.machines
        for key in self._left.setdefault(job, iter(self._hopeful[job])):
            one = self._waiting[key]
            self._pending = WaitingExecutors(self._demands)
            self._pending.add(key, one.number, one.rank)
            own: Ints = np.arange(self._begin.get(one.number, 0), len(machines))
            if one.allowed is not None:
                own = own[one.allowed[self._room.workers[own]]]
            for machine in machines_that_fit(machines, own, self._demands, one.number):
                self._heartbeat(machine, [])
                if key in self.placed:
                    if one.allowed is None:
                        self._begin[one.number] = machine
                    return self.placed[key]
            if one.allowed is None:
                self._begin[one.number] = len(machines)
        return None

    def tasks_placed(self, placed: Sequence[tuple[int, Need]]) -> None:
        """Take the room of these tasks out of what is free for executors."""
        for worker, need in placed:
            machine = self._machines.get(worker)
            if machine is not None:
                self._room.machines.keep(machine, np.array([need.cores, 0.0, 0.0, need.amounts[MEMORY]]))

    def tried(self) -> dict[Key, Tried]:
        """Return the executors that were not placed."""
        return {key: Tried(one.demand, one.allowed) for key, one in self._waiting.items()}

    def lacks(self) -> dict[str, str]:
        """Return by job the resources that its first executor without a place lacks."""
        first = {one.job.job: one for one in reversed(self._waiting.values())}
        anywhere: dict[int, str] = {}  # by demand, of executors that may go to every node: this looks at all of them
        found: dict[str, str] = {}
        for job, one in first.items():
            said = anywhere.get(one.number) if one.allowed is None else None
            found[job] = said if said is not None else self._room.lacks(one.demand, one.allowed)
            if one.allowed is None:
                anywhere[one.number] = found[job]
        return found

    def _heartbeat(self, machine: int, choosy: list[Key]) -> None:
        """Place executors on one machine; restricted executors queue only at their allowed machines."""
        here = [key for key in choosy if key in self._waiting]
        for key in here:
            self._pending.add(key, self._waiting[key].number, self._waiting[key].rank)
        for launch in self._policy.heartbeat(self._room.machines, machine, self._pending):
            self._launch(launch)
        for key in here:
            if key in self._waiting:
                self._pending.remove(key, self._waiting[key].number)

    def _launch(self, launch: Launch) -> None:
        held = self._demands.of(launch.demand)
        self._room.machines.launch(launch.machine, launch.executor, held)
        key = self._pending.take(launch.demand)
        assert key == launch.executor and isinstance(key, tuple)
        one, node = self._waiting.pop(key), self._room.nodes[launch.machine]
        demand = one.demand if self._policy.elastic else one.demand.at_most(held)
        self._executors.tell_stages(one.job, node.name)
        why = f"{launch.why}; {one.forecast.by}"
        self._tasks.assign(one.job, one.task, node, why, profile=demand.profile)
        copy = node.held[key]
        copy.follow(demand.profile, demand.outside_profile, self.now)
        need = Need(key[0], key[1], (0.0, 0.0, 0.0, float(copy.memory_bytes)), cores=copy.cores, holds=copy.holds())
        self.placed[key] = int(self._room.workers[launch.machine]), need
        self._outbox.explain(
            "executor placed", job=key[0], task=key[1], node=node.name, application=one.forecast.application,
            slots=demand.profile.slots, why=why,
        )  # fmt: skip
