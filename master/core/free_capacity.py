"""Free capacity for executors on the nodes, slot by slot, as a round sees it, and the demands of waiting executors.

A node reports its availability over time when that changes (:class:`~penstock.wire.master_api.Availability`); later
assignments and the elapsed time are subtracted here. Without a report, a node's unpromised capacity is available.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import le

import msgspec
import numpy as np

from master.core.forecasts import key_of
from master.core.job import Job, Task
from master.core.node import Node
from master.core.reported_availability import capacity_of
from master.core.settings import MasterSettings
from master.placement import Demands, Machines
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
from master.placement.executors import TOLERANCE
from master.placement.workers import COLUMN_NAMES, Mask
from penstock.model import Profile
from penstock.model.resource_vector import RESOURCES, ResourceVector
from penstock.model.units import counted


@dataclass(frozen=True, slots=True)
class Demand:
    """An executor's demand: its profile, and the promised amounts of the resources that the profile leaves out."""

    profile: Profile
    outside_profile: ResourceVector

    @classmethod
    def of(cls, job: Job, task: Task, profile: Profile) -> Demand:
        """Return the demand of a waiting executor."""
        request = task.request
        assert request is not None
        assert request.command is not None
        _, settings, _ = key_of(job, task)
        network = float(request.command.network_bytes_per_s)
        promise = (settings.cores, 0.0, network, float(settings.memory_bytes))
        outside = (0.0 if getattr(profile, name) else amount for name, amount in zip(RESOURCES, promise, strict=True))
        return cls(profile, ResourceVector._make(outside))

    @property
    def largest(self) -> tuple[float, int]:
        """Return the most cores and bytes of memory at any time."""
        cores, _, _, memory = self.outside_profile
        return max(self.profile.cpu_cores, default=cores), max(self.profile.memory_bytes, default=int(memory))

    def over(self, grid: Grid) -> Floats:
        """Return resources × slots, from the executor's start on."""
        wanted: Floats = demand(self.profile, grid.slot_s, grid.slots) + np.array(self.outside_profile)[:, None]
        return wanted

    def at_most(self, held: Floats) -> Demand:
        """Return the demand of an executor that holds a constant amount (resources × 1) of the promised resources."""
        values = held[:, 0].tolist()
        named = {
            name: (amount if name == "cpu_cores" else round(amount),)
            for name, amount, constant in zip(RESOURCES, values, self.outside_profile, strict=True)
            if amount > 0 and not constant
        }
        return Demand(Profile(slot_s=self.profile.slot_s, **named), self.outside_profile) if named else self


@dataclass(frozen=True, slots=True)
class Grid:
    """The slots of a round: their length and number. The last slot stands for all later time."""

    slot_s: float
    slots: int

    @classmethod
    def of(cls, settings: MasterSettings, profiles: Sequence[Profile], *, elastic: bool) -> Grid:
        """Return a grid for the longest profile, in longer slots if need be; one slot for policies without time."""
        slot_s = max([settings.executor_slot_s, *(profile.slot_s for profile in profiles)])
        ending = [profile for profile in profiles if not lasting(profile)]
        while True:
            longest = max((slots_of(profile, slot_s) for profile in ending), default=1)
            if longest <= settings.executor_horizon_slots:
                return cls(slot_s, longest + 1 if elastic else 1)
            slot_s *= 2


@dataclass(slots=True, eq=False)
class FreeCapacity:
    """The machines that a round examines: those of ``nodes``; ``workers`` has their numbers in the round's snapshot."""

    grid: Grid
    machines: Machines
    nodes: list[Node]
    workers: Ints

    def keep(self) -> None:
        """Take the room that is kept for waiting tasks out of what is free."""
        for machine, node in enumerate(self.nodes):
            if node.kept_tasks:
                self.machines.keep(machine, np.array([node.kept_cores, 0.0, 0.0, float(node.kept_memory_bytes)]))

    def lacks(self, one: Demand, allowed: Mask | None) -> str:
        """Describe how many nodes lack which resources for an executor."""
        wanted = one.over(self.grid)
        may = np.arange(len(self.machines)) if allowed is None else allowed[self.workers].nonzero()[0]
        if not len(may):
            return f"it may go to none of {counted(len(self.machines), 'node')} now"
        lacking = self.machines.lacking(may, wanted)
        said = [
            f"{count} {'lacks' if count == 1 else 'lack'} {name}"
            for name, count in zip(COLUMN_NAMES, lacking.sum(axis=0).tolist(), strict=True)
            if count
        ]
        parts = (
            [f"{', '.join(said)} within the {wanted.shape[1] * self.grid.slot_s:g} s of its profile"] if said else []
        )
        if roomy := int((~lacking.any(axis=1)).sum()):  # since the latest round
            has, is_ = ("has", "is") if roomy == 1 else ("have", "are")
            parts.append(f"{roomy} {has} room for it now and {is_} tried in the next round")
        return f"of {counted(len(may), 'node')} {'; '.join(parts)}"


def largest_first(capacity: Floats) -> Floats:
    """Return the capacities of nodes (n × resources) with that of the largest before them."""
    if not len(capacity):
        return capacity
    most_memory = np.flatnonzero(capacity[:, -1] == capacity[:, -1].max())
    largest = capacity[most_memory[capacity[most_memory, 0].argmax()]]
    return np.concatenate((largest[None], capacity))


def within(profile: Profile, capacity: Floats) -> Profile:
    """Return the profile if one of the nodes could hold it when empty; else limit its values to the largest node's,
    because an executor cannot use more than that. ``capacity`` is of :func:`largest_first`.
    """
    peaks = [max(getattr(profile, name), default=0) for name in RESOURCES]
    if not len(capacity):
        return profile
    largest = [most if most > 0 else math.inf for most in capacity[0].tolist()]
    if all(map(le, peaks, largest)) or _holds(capacity, peaks):
        return profile
    named = {}
    for name, most, peak in zip(RESOURCES, largest, peaks, strict=True):
        if peak > most:
            named[name] = tuple(
                min(value, most if name == "cpu_cores" else int(most)) for value in getattr(profile, name)
            )
    return msgspec.structs.replace(profile, **named)


def _holds(capacity: Floats, peaks: Sequence[float]) -> bool:
    """Return whether one of the nodes (n × resources) could hold these peaks when empty."""
    there = capacity.T
    return bool(((there <= 0) | (np.array(peaks)[:, None] <= there)).all(axis=0).any())


def with_room(demands: Demands, capacity: Floats, available_at_most: Floats) -> Mask:
    """Return which nodes may fit some demand in the present slot: the others fit none. Both arrays are nodes ×
    resources.
    """
    room = np.where(capacity > 0, available_at_most + 2 * TOLERANCE * capacity, np.inf)  # twice: sums in another order
    starts = demands.starts[: len(demands)]
    found: Mask = (starts.min(axis=0) <= room).all(axis=1)
    some = found.nonzero()[0]
    left = np.ascontiguousarray(room[some].T)
    found[some] = reduce(np.logical_or, ((start[:, None] <= left).all(axis=0) for start in starts))
    return found


def free_capacity(grid: Grid, nodes: Sequence[Node], workers: Sequence[int], wanted: Mask, now: float) -> FreeCapacity:
    """Return the free capacity of ``workers`` among ``nodes``. What no waiting executor wants counts as unknown."""
    chosen = [nodes[worker] for worker in workers]
    capacity = np.array([capacity_of(node) for node in chosen]).reshape(len(chosen), len(RESOURCES))
    available = np.array([_available(node, grid, now) for node in chosen]).reshape(*capacity.shape, grid.slots)
    first_end = np.array([_first_end(node, grid, now) for node in chosen], dtype=np.intp)
    ignored = (capacity <= 0) | ~wanted
    capacity[ignored] = UNKNOWN
    available[ignored] = UNKNOWN_AVAILABLE
    machines = Machines([node.name for node in chosen], capacity, available, first_end)
    return FreeCapacity(grid, machines, chosen, np.array(workers, dtype=np.intp))


def _available(node: Node, grid: Grid, now: float) -> Floats:
    """Return AR(j), resources × slots from now on."""
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
            left -= np.array(held.outside_profile)[:, None]
        else:
            left -= np.array([held.cores, 0.0, 0.0, float(held.memory_bytes)])[:, None]
    found: Floats = np.maximum(left, 0.0)
    return found


def _first_end(node: Node, grid: Grid, now: float) -> int:
    """Return the slots until the first executor's predicted end; all slots where unknown."""
    profiles = [(held.profile, held.assigned_at) for held in node.held.values() if held.profile is not None]
    ends = [end_in(profile, now - at, grid.slot_s, grid.slots) for profile, at in profiles]
    return min(ends, default=grid.slots)
