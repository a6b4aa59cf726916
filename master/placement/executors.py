"""Executors, machines and their promised resources over time; the protocol of all policies that place executors.

An executor is a long-lived container whose demand varies (Elasecutor §III). All arrays have the resources of
:data:`RESOURCES` in that order, then slots of equal length from now on.

A policy that follows profiles looks ``slots`` ahead. A policy that reserves peaks uses a single slot, and its holdings
last until they are released.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np

from master.placement.drr import Floats, Ints
from master.placement.workers import COLUMN_NAMES, Mask
from penstock.model.units import counted

RESOURCES = COLUMN_NAMES

#: Tolerance for rounding of sums in another order; equality fits (Fig. 6, executor 2).
TOLERANCE = 1e-9
#: Number of slots compared first: most demands that do not fit already fail there.
_FIRST_SLOTS = 16
#: The first machines are compared before all others: an executor often goes where an equal one went, or near.
_PARTS = (1, 32)
#: Of the machines that fit in the first slot, the first ones are compared one by one in every slot, then these at once.
_SINGLY, _AT_ONCE = 2, 32
#: As many machines are compared at once where those that lack something are counted.
_COUNTED_AT_ONCE = 256


class Demands:
    """Distinct demands, numbered from 0. Executors of one application share one.

    Units: cores, bytes/s, bytes/s, bytes. ``amounts`` is n × resources × slots, zero after an executor's end,
    ``cumulative`` n × resources × (slots + 1), ``lengths`` n, ``starts`` (the first slot) and ``peaks`` n × resources.
    """

    def __init__(self, slots: int, names: Sequence[str] = RESOURCES) -> None:
        self.slots = slots
        self.names = tuple(names)
        resources = len(names)
        self.amounts: Floats = np.zeros((8, resources, slots))
        self.cumulative: Floats = np.zeros((8, resources, slots + 1))
        self.lengths: Ints = np.zeros(8, dtype=np.intp)
        self.starts: Floats = np.zeros((8, resources))
        self.peaks: Floats = np.zeros((8, resources))
        self._used = 0

    def __len__(self) -> int:
        return self._used

    def add(self, demand: Floats) -> int:
        """Add a demand (resources × its own slots) and return its number.

        Raises: ValueError: it is longer than the plan looks ahead, empty, negative or not finite.
        """
        length = demand.shape[1]
        if not 0 < length <= self.slots:
            raise ValueError(f"a demand of {counted(length, 'slot')} where plans have {self.slots}")
        if not np.isfinite(demand).all() or (demand < 0).any():
            raise ValueError("a demand is a finite number from 0 on")
        number = self._used
        if number == len(self.lengths):
            self._grow()
        self.amounts[number, :, :length] = demand
        np.cumsum(self.amounts[number], axis=1, out=self.cumulative[number, :, 1:])
        self.lengths[number] = length
        self.starts[number] = demand[:, 0]
        self.peaks[number] = demand.max(axis=1)
        self._used += 1
        return number

    def of(self, number: int) -> Floats:
        """Return one demand, resources × its own slots."""
        view: Floats = self.amounts[number, :, : self.lengths[number]]
        return view

    def _grow(self) -> None:
        self.amounts = np.concatenate((self.amounts, np.zeros_like(self.amounts)))
        self.cumulative = np.concatenate((self.cumulative, np.zeros_like(self.cumulative)))
        self.lengths = np.concatenate((self.lengths, np.zeros_like(self.lengths)))
        self.starts = np.concatenate((self.starts, np.zeros_like(self.starts)))
        self.peaks = np.concatenate((self.peaks, np.zeros_like(self.peaks)))


class WaitingExecutors:
    """The waiting executors in the order of asking, grouped by demand."""

    def __init__(self, demands: Demands) -> None:
        self.demands = demands
        self._queues: dict[int, list[tuple[int, int, Hashable]]] = {}
        self._waiting = 0
        self._asked = 0
        self._order: Ints | None = None

    def __len__(self) -> int:
        return self._waiting

    def add(self, executor: Hashable, demand: int, rank: int | None = None) -> None:
        """Add an executor. ``rank`` is its place in the order, by default that of asking, which also breaks ties."""
        self._asked += 1
        queue = self._queues.setdefault(demand, [])
        insort(queue, (self._asked if rank is None else rank, self._asked, executor), key=lambda entry: entry[:2])
        self._order = None
        self._waiting += 1

    def remove(self, executor: Hashable, demand: int) -> None:
        """Remove a waiting executor with this demand. Raises ValueError: it does not wait."""
        queue = self._queues.get(demand, [])
        kept = [entry for entry in queue if entry[2] != executor]
        if len(kept) == len(queue):
            raise ValueError(f"{executor} does not wait")
        self._queues[demand] = kept
        if not kept:
            del self._queues[demand]
        self._order = None
        self._waiting -= 1

    def waiting(self) -> tuple[Ints, Ints]:
        """Return the demands of waiting executors, in the order of their first executor, and the number waiting with
        each.
        """
        if self._order is None:
            self._order = np.array(sorted(self._queues, key=lambda demand: self._queues[demand][0][0]), dtype=np.intp)
        counts = np.array([len(self._queues[demand]) for demand in self._order.tolist()], dtype=np.intp)
        return self._order, counts

    def peek(self, demand: int, place: int = 0) -> Hashable:
        """Return the executor at a place of a demand's queue."""
        return self._queues[demand][place][2]

    def take(self, demand: int) -> Hashable:
        """Remove and return the first executor that waits with a demand."""
        queue = self._queues[demand]
        executor = queue.pop(0)[2]
        self._order = None
        if not queue:
            del self._queues[demand]
        self._waiting -= 1
        return executor


class Machines:
    """The available resources of each machine, slot by slot, less the executors launched since: AR(j) of Table V.

    ``capacity`` is machines × resources.
    """

    def __init__(self, names: Sequence[str], capacity: Floats, available: Floats, first_end: Ints) -> None:
        """``available`` is machines × resources × slots; ``first_end`` (machines) as :meth:`first_end`."""
        self.names = list(names)
        self.capacity = capacity
        self.slots = int(available.shape[2])
        self.changes = 0  # increases with each change of the free resources
        self._available = available.copy()
        self._first_end = first_end.copy()
        self._changed_in: Ints = np.zeros(len(self.names), dtype=np.intp)

    def __len__(self) -> int:
        return len(self.names)

    def available(self, machine: int) -> Floats:
        """Return resources × slots from now on; a view that changes with the machine."""
        view: Floats = self._available[machine]
        return view

    def free(self, which: Ints | slice = slice(None)) -> Floats:
        """Return machines (all, or ``which``) × resources in the present slot: a copy."""
        return self._available[which, :, 0].copy()

    def first_end(self, machine: int) -> int:
        """Return the slots until the first running executor ends; all known slots where none runs."""
        return int(self._first_end[machine])

    def changed_since(self, change: int) -> list[int]:
        """Return the machines whose free resources have changed since that number of changes."""
        found: list[int] = np.flatnonzero(self._changed_in > change).tolist()
        return found

    def lacking(self, which: Ints, demand: Floats) -> Mask:
        """Return of which resources (machines of ``which`` × resources) a machine has less than a demand (resources ×
        its slots) in some slot.
        """
        found = np.zeros((len(which), demand.shape[0]), dtype=np.bool_)
        for begin in range(0, len(which), _COUNTED_AT_ONCE):
            some = which[begin : begin + _COUNTED_AT_ONCE]
            room = self._available[some, :, : demand.shape[1]] + TOLERANCE * self.capacity[some, :, None]
            found[begin : begin + _COUNTED_AT_ONCE] = (demand > room).any(axis=2)
        return found

    def launch(self, machine: int, executor: Hashable, demand: Floats) -> None:
        """Promise ``demand`` (resources × its slots) from now on. Raises ValueError: it does not fit."""
        available = self.available(machine)[:, : demand.shape[1]]
        slack = TOLERANCE * self.capacity[machine][:, None]
        if (demand > available + slack).any():
            raise ValueError(f"{executor} does not fit on {self.names[machine]}")
        available -= demand
        self._changed(machine)
        self._first_end[machine] = min(self._first_end[machine], demand.shape[1])

    def keep(self, machine: int, amounts: Floats) -> None:
        """Take these amounts (resources) out of what is available, at all times."""
        available = self.available(machine)
        np.maximum(available - amounts[:, None], 0.0, out=available)
        self._changed(machine)

    def _changed(self, machine: int) -> None:
        self.changes += 1
        self._changed_in[machine] = self.changes


@dataclass(frozen=True, slots=True)
class Launch:
    """A decision: the executor, its demand, the machine, and the rule and the numbers behind it."""

    executor: Hashable
    demand: int
    machine: int
    why: str


class ExecutorPolicy(Protocol):
    """Chooses the executors to launch on a machine's heartbeat.

    ``elastic``: an executor's holdings follow its profile; otherwise they are constant until it ends. ``by_stage``: an
    executor is launched for one stage only. ``reserves`` (resources): the resources it holds; the others are shared
    freely.
    """

    @property
    def elastic(self) -> bool: ...
    @property
    def by_stage(self) -> bool: ...
    @property
    def reserves(self) -> Mask: ...

    def demand(self, profile: Floats) -> Floats:
        """Return the holdings of an executor with this profile (resources × slots): resources × slots, or × 1."""
        ...

    def heartbeat(self, machines: Machines, machine: int, pending: WaitingExecutors) -> list[Launch]:
        """Return proposals in the order of decision; the caller carries them out."""
        ...


def fitting(demands: Demands, numbers: Ints, available: Floats, slack: Floats) -> Mask:
    """Return which demands are ≤ the available resources in every slot (Algorithm 1, line 5; equality fits: Fig. 6,
    executor 2).

    ``slack`` (resources) is the tolerance for rounding.
    """
    room = available + slack[:, None]
    left = np.flatnonzero(np.all(demands.starts[numbers] <= room[:, 0], axis=1))
    sure = np.all(demands.peaks[numbers[left]] <= room.min(axis=1), axis=1)
    unsure = left[~sure]
    begin, end = 0, _FIRST_SLOTS
    while begin < demands.slots and len(unsure):
        block = demands.amounts[numbers[unsure], :, begin:end]
        unsure = unsure[np.all(block <= room[:, begin:end], axis=(1, 2))]
        begin, end = end, 3 * end
    fits: Mask = np.zeros(len(numbers), dtype=np.bool_)
    fits[left[sure]] = fits[unsure] = True
    return fits


def fits_somewhere(machines: Machines, which: Ints, demands: Demands, number: int) -> bool:
    """Return whether one of the machines ``which`` fits a demand in every slot."""
    return next(machines_that_fit(machines, which, demands, number), None) is not None


def machines_that_fit(machines: Machines, which: Ints, demands: Demands, number: int) -> Iterator[int]:
    """Yield the machines of ``which`` that fit a demand in every slot."""
    held = demands.of(number)
    begin = 0
    for end in (*_PARTS, len(which)):
        part = which[begin:end]
        room = machines.free(part) + TOLERANCE * machines.capacity[part]
        left = part[reduce(np.logical_and, (held[:, 0] <= room).T)]
        for machine in left[:_SINGLY].tolist():
            slack = TOLERANCE * machines.capacity[machine, :, None]
            if (held <= machines.available(machine)[:, : held.shape[1]] + slack).all():
                yield machine
        for at in range(_SINGLY, len(left), _AT_ONCE):
            some = left[at : at + _AT_ONCE]
            available = np.stack([machines.available(machine)[:, : held.shape[1]] for machine in some.tolist()])
            fits = (held <= available + TOLERANCE * machines.capacity[some][:, :, None]).all(axis=(1, 2))
            yield from some[fits].tolist()
        begin = end


def machines_with_room(machines: Machines, which: Ints, pending: WaitingExecutors) -> list[int]:
    """Return the machines of ``which`` that fit some waiting executor in the present slot: others need no heartbeat."""
    numbers, _ = pending.waiting()
    room = machines.free(which) + TOLERANCE * machines.capacity[which]
    starts = pending.demands.starts[numbers]
    found: list[int] = which[np.all(starts[None] <= room[:, None], axis=2).any(axis=1)].tolist()
    return found
