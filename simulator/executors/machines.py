"""Machines over the time of a simulation: the slots move along, and holdings end or are replaced."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from master.placement.drr import Floats, Ints
from master.placement.executors import Machines


@dataclass(slots=True, eq=False)
class _Held:
    """The holdings of an executor from slot ``began`` of its machine's clock on (resources × slots)."""

    amounts: Floats
    began: int


class PlannedMachines(Machines):
    """The available resources of each machine, slot by slot, and the executors' holdings.

    ``capacity`` is machines × resources.
    """

    def __init__(self, names: Sequence[str], capacity: Floats, slots: int) -> None:
        # Twice the slots: a window of ``slots`` moves along them, so the end of a slot copies nothing.
        twice = np.repeat(capacity[:, :, None], 2 * slots if slots > 1 else 1, axis=2)
        super().__init__(names, capacity, twice, np.full(len(names), slots, dtype=np.intp))
        self.slots = slots
        self._origin: Ints = np.zeros(len(self.names), dtype=np.intp)
        self._passed = [0] * len(self.names)
        self._held: list[dict[Hashable, _Held]] = [{} for _ in self.names]

    def available(self, machine: int) -> Floats:
        """Return resources × slots from now on; a view that changes with the machine."""
        origin = int(self._origin[machine])
        return self._available[machine, :, origin : origin + self.slots]

    def free(self, which: Ints | slice = slice(None)) -> Floats:
        """Return machines (all, or ``which``) × resources in the present slot: a copy."""
        if self.slots == 1:
            return super().free(which)
        free: Floats = self._available[np.arange(len(self))[which], :, self._origin[which]]
        return free

    def first_end(self, machine: int) -> int:
        """Return the slots until the first running executor ends; all slots where none runs."""
        passed = self._passed[machine]
        ends = [held.began + held.amounts.shape[1] - passed for held in self._held[machine].values()]
        return min((end for end in ends if end > 0), default=self.slots)

    def held(self, machine: int, executor: Hashable) -> Floats:
        """Return an executor's remaining holdings, resources × slots from now on."""
        held = self._held[machine][executor]
        return held.amounts[:, self._passed[machine] - held.began :]

    def executors(self, machine: int) -> list[Hashable]:
        """Return the executors with holdings there, in the order of launching."""
        return list(self._held[machine])

    def launch(self, machine: int, executor: Hashable, demand: Floats) -> None:
        """Promise ``demand`` (resources × its slots) from now on. Raises ValueError: it runs there, or does not fit."""
        if executor in self._held[machine]:
            raise ValueError(f"{executor} runs on {self.names[machine]} already")
        super().launch(machine, executor, demand)
        self._held[machine][executor] = _Held(demand, self._passed[machine])

    def end(self, machine: int, executor: Hashable) -> None:
        """Release an executor's holdings from now on."""
        left = self.held(machine, executor)
        self.available(machine)[:, : left.shape[1]] += left
        self._changed(machine)
        del self._held[machine][executor]

    def replan(self, machine: int, executor: Hashable, wanted: Floats) -> Floats:
        """Replace an executor's holdings by ``wanted`` (resources × slots) as far as available; return the granted
        amounts.

        Other executors' holdings never change: in a slot with too little of one resource, the executor gets the same
        fraction of every resource, because it can progress no faster.
        """
        self.end(machine, executor)
        room = np.maximum(self.available(machine)[:, : wanted.shape[1]], 0.0)
        fraction = np.divide(room, wanted, out=np.ones_like(wanted), where=wanted > 0).min(axis=0).clip(max=1.0)
        granted: Floats = wanted * fraction
        self.launch(machine, executor, granted)
        return granted

    def tick(self, machine: int) -> None:
        """Advance by one slot. Policies with peaks (one slot) have no time."""
        if self.slots == 1:
            return
        self._changed(machine)
        self._passed[machine] += 1
        self._origin[machine] += 1
        if self._origin[machine] == self.slots:
            free = self._available[machine]
            free[:, : self.slots] = free[:, self.slots :]
            free[:, self.slots :] = self.capacity[machine][:, None]
            self._origin[machine] = 0
