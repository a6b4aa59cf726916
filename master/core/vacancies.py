"""What is available to executors on the nodes, slot by slot, as a round sees it, and what those that wait want.

A node says what it has over time when that changes (:class:`~penstock.wire.master_api.Availability`); what it was given
since comes off, and time has passed. A node that has said nothing has what it did not promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from master.core.forecasts import key_of
from master.core.records import Job, Node, Task
from master.core.settings import MasterSettings
from master.placement import Machines
from master.placement.availability import (
    UNKNOWN,
    UNKNOWN_AVAILABLE,
    amounts,
    demand,
    end_in,
    lasting,
    over,
    rest_of,
    slots_of,
)
from master.placement.drr import Floats, Ints
from master.placement.executors import RESOURCES, TOLERANCE
from master.placement.workers import Mask
from penstock.model import Profile
from penstock.model.units import counted

_NAMES = ("cpu_cores", "disk_bytes_per_s", "network_bytes_per_s", "memory_bytes")


@dataclass(frozen=True, slots=True)
class Demand:
    """What an executor wants: its profile, and ``beside`` it the promise of what that does not name (resources)."""

    profile: Profile
    beside: tuple[float, float, float, float]

    @classmethod
    def of(cls, job: Job, task: Task, profile: Profile) -> Demand:
        """Of one that waits."""
        request = task.request
        assert request is not None
        assert request.command is not None
        _, settings, _ = key_of(job, task)
        network = float(request.command.network_bytes_per_s)
        promise = (settings.cores, 0.0, network, float(settings.memory_bytes))
        cores, disk, sent, memory = (
            0.0 if getattr(profile, name) else amount for name, amount in zip(_NAMES, promise, strict=True)
        )
        return cls(profile, (cores, disk, sent, memory))

    @property
    def same(self) -> object:
        """Equal for those that want the same."""
        return id(self.profile), self.beside

    def over(self, grid: Grid) -> Floats:
        """Resources × slots from its start on."""
        wanted: Floats = demand(self.profile, grid.slot_s, grid.slots) + np.array(self.beside)[:, None]
        return wanted

    def at_most(self, held: Floats) -> Demand:
        """Of one that holds one amount (resources × 1) until it ends, of what it is promised at all."""
        values = held[:, 0].tolist()
        named = {
            name: (amount if name == "cpu_cores" else round(amount),)
            for name, amount, beside in zip(_NAMES, values, self.beside, strict=True)
            if amount > 0 and not beside
        }
        return Demand(Profile(slot_s=self.profile.slot_s, **named), self.beside) if named else self


@dataclass(frozen=True, slots=True)
class Grid:
    """The slots of a round: how long, and how many. The last one stands for all that is to come."""

    slot_s: float
    slots: int

    @classmethod
    def of(cls, settings: MasterSettings, profiles: Sequence[Profile], *, elastic: bool) -> Grid:
        """For the longest of these; long ones are looked at in longer slots. One for who knows nothing of time."""
        slot_s = max([settings.executor_slot_s, *(profile.slot_s for profile in profiles)])
        ending = [profile for profile in profiles if not lasting(profile)]
        while True:
            longest = max((slots_of(profile, slot_s) for profile in ending), default=1)
            if longest <= settings.executor_horizon_slots:
                return cls(slot_s, longest + 1 if elastic else 1)
            slot_s *= 2


@dataclass(slots=True, eq=False)
class Vacancies:
    """The machines that a round looks at: those of ``nodes``, each the worker of that number in the round's picture."""

    grid: Grid
    machines: Machines
    nodes: list[Node]
    workers: Ints

    def lacks(self, one: Demand, allowed: Mask | None) -> str:
        """What keeps an executor from how many nodes, in words."""
        wanted = one.over(self.grid)
        machines = self.machines
        may = [machine for machine in range(len(machines)) if allowed is None or allowed[self.workers[machine]]]
        if not may:
            return f"it may go to none of {counted(len(machines), 'node')} now"
        short = [
            (wanted > machines.available(machine)[:, : wanted.shape[1]] + _slack(machines, machine)).any(axis=1)
            for machine in may
        ]
        counts = np.sum(short, axis=0).tolist()
        said = [
            f"{count} {'lacks' if count == 1 else 'lack'} {name}"
            for name, count in zip(RESOURCES, counts, strict=True)
            if count
        ]
        over_s = wanted.shape[1] * self.grid.slot_s
        lacking = ", ".join(said) or "none was reached"
        return f"of {counted(len(may), 'node')} {lacking} within the {over_s:g} s of its profile"


def _slack(machines: Machines, machine: int) -> Floats:
    slack: Floats = TOLERANCE * machines.capacity[machine][:, None]
    return slack


def capacities(nodes: Sequence[Node]) -> Floats:
    """Nodes × resources; 0 of what nobody knows."""
    found: Floats = np.array([_capacity(node) for node in nodes]).reshape(len(nodes), len(RESOURCES))
    return found


def within(profile: Profile, capacity: Floats) -> Profile:
    """The profile where a node (n × resources) could hold it, were it empty; else no value above what the largest of
    them has: more than all there is nobody can want."""
    known = np.where(capacity > 0, capacity, np.inf)
    peaks = [max(getattr(profile, name), default=0) for name in _NAMES]
    if not len(known) or np.all(known >= peaks, axis=1).any():
        return profile
    largest = known[max(range(len(capacity)), key=lambda node: (capacity[node, -1], capacity[node, 0]))].tolist()
    named = {}
    for name, most, peak in zip(_NAMES, largest, peaks, strict=True):
        if peak > most:
            named[name] = tuple(
                min(value, most if name == "cpu_cores" else int(most)) for value in getattr(profile, name)
            )
    return msgspec.structs.replace(profile, **named)


def vacancies(grid: Grid, nodes: Sequence[Node], workers: Sequence[int], wanted: Mask, now: float) -> Vacancies:
    """Of the ``workers`` among the ``nodes``. A resource that nobody who waits wants is looked at as an unknown one."""
    chosen = [nodes[worker] for worker in workers]
    capacity = capacities(chosen)
    available = np.array([_available(node, grid, now) for node in chosen])
    first_end = np.array([_first_end(node, grid, now) for node in chosen], dtype=np.intp)
    ignored = (capacity <= 0) | ~wanted
    capacity[ignored] = UNKNOWN
    available[ignored] = UNKNOWN_AVAILABLE
    machines = Machines.with_available([node.name for node in chosen], capacity, available, first_end)
    return Vacancies(grid, machines, chosen, np.array(workers, dtype=np.intp))


def _capacity(node: Node) -> Floats:
    """0 of what nobody knows."""
    if node.availability is None:
        return np.array([node.capacity.cores, 0.0, 0.0, float(node.capacity.memory_bytes)])
    capacity: Floats = amounts([node.availability.capacity])[:, 0]
    return capacity


def _available(node: Node, grid: Grid, now: float) -> Floats:
    """AR(j), resources × slots from now on."""
    said = node.availability
    if said is None:
        free = np.array([node.cores_free(), 0.0, 0.0, float(node.memory_free_bytes())])
        flat: Floats = np.repeat(np.maximum(free, 0.0)[:, None], grid.slots, axis=1)
        return flat
    elapsed_s = said.elapsed_s + max(0.0, now - node.availability_at)
    left = over(amounts(said.slots), said.slot_s, elapsed_s, grid.slot_s, grid.slots, np.minimum)
    for held in node.held.values():
        if not (held.regular and held.coming(node.decided)):
            continue
        if held.profile is not None:
            left -= rest_of(held.profile, max(0.0, now - held.assigned_at), grid.slot_s, grid.slots)
            left -= np.array(held.beside)[:, None]
        else:
            left -= np.array([held.cores, 0.0, 0.0, float(held.memory_bytes)])[:, None]
    found: Floats = np.maximum(left, 0.0)
    return found


def _first_end(node: Node, grid: Grid, now: float) -> int:
    """Slots until the first executor there is predicted to end; all of them where nobody knows."""
    profiles = [(held.profile, held.assigned_at) for held in node.held.values() if held.profile is not None]
    ends = [end_in(profile, now - at, grid.slot_s, grid.slots) for profile, at in profiles]
    return min(ends, default=grid.slots)
