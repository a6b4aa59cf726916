"""A round's placement of executors by their profiles, heartbeat by heartbeat (Elasecutor §III.B, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from master.core import events as e
from master.core.executors import Executors, Reason
from master.core.free_capacity import Demand, Grid, free_capacity, with_room
from master.core.job import Job, Key, Task
from master.core.kept_room import Room
from master.core.lacking import Lacking
from master.core.late_executors import Tried
from master.core.node import Node
from master.core.outbox import Outbox
from master.core.settings import MasterSettings
from master.core.snapshot import RoundSnapshot, Snapshots
from master.core.task_lifecycle import TaskLifecycle
from master.core.user_quotas import HeldBack
from master.placement import Demands, Launch, Need, WaitingExecutors
from master.placement.drr import Ints
from master.placement.executors import fits_somewhere, machines_that_fit, machines_with_room
from master.placement.workers import MEMORY, Mask


@dataclass(slots=True)
class WaitingExecutor:
    """A waiting executor; ``allowed`` (connected nodes) is None where every node is allowed."""

    rank: int
    job: Job
    task: Task
    forecast: e.Forecasted
    allowed: Mask | None
    demand: Demand
    number: int = 0


@dataclass(frozen=True, slots=True)
class Examined:
    """The nodes of a round, and the numbers of those that it examines. ``not_offered``: by job, why executors may not
    be placed on any; ``over``: by job, what executors over their user's limit wait for.
    """

    snapshot: RoundSnapshot
    nodes: list[Node]
    workers: list[int]
    everywhere: bool
    not_offered: dict[str, Reason]
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
        waiting: list[WaitingExecutor],
        examined: Examined,
        now: float,
    ) -> None:
        self.examined, self.now = examined, now
        self.placed: dict[Key, tuple[int, Need]] = {}  # the worker, and the need there
        self._executors = executors
        self._tasks = tasks
        self._outbox = outbox
        self._policy = executors.policy
        self._grid = grid = Grid.of(settings, [one.demand.profile for one in waiting], elastic=self._policy.elastic)
        self._demands = Demands(grid.slots)
        self._pending = WaitingExecutors(self._demands)
        self._waiting: dict[Key, WaitingExecutor] = {(one.task.job, one.task.name): one for one in waiting}
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
        workers = self._with_room() if self._policy.elastic else examined.workers
        self._room = free_capacity(grid, examined.nodes, workers, wanted, now)
        self._machines = {worker: machine for machine, worker in enumerate(workers)}

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
        if not len(machines):
            return
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
        """Place executors of these jobs; return the worker of each and its need there."""
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
        """Place the next executor of this job that fits; return its worker and its need there. None: none fits."""
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
        """Take the room of these tasks out of the free room for executors."""
        for worker, need in placed:
            machine = self._machines.get(worker)
            if machine is not None:
                self._room.machines.keep(machine, np.array([need.cores, 0.0, 0.0, need.amounts[MEMORY]]))

    def tried(self) -> dict[Key, Tried]:
        """Return the executors that were not placed."""
        return {key: Tried(one.demand, one.allowed) for key, one in self._waiting.items()}

    def lacks(self, snapshots: Snapshots) -> dict[str, Reason]:
        """Return by job the resources that its first executor without a place lacks."""
        waiting = ((one.task, one.demand, one.number) for one in self._waiting.values())
        return Lacking(snapshots, self._grid, waiting).reasons()

    def _with_room(self) -> list[int]:
        """Return the workers that may have room for some executor now: no policy that follows profiles launches one on
        another.
        """
        snapshot, workers = self.examined.snapshot, np.array(self.examined.workers)
        most, capacity = snapshot.available_at_most(workers, self._grid.slot_s), snapshot.executor_capacity(workers)
        found: list[int] = workers[with_room(self._demands, capacity, most)].tolist()
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
