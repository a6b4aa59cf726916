"""A random machine among those that fit, and the policies of Spark that place so: static and dynamic (§V.A.2, §V.B)."""

from __future__ import annotations

from collections.abc import Callable
from math import log1p
from operator import gt

import numpy as np

from master.placement.choices import Choices
from master.placement.drr import Floats
from master.placement.executors import Launch, Machines, Pending
from master.placement.peak import fit, in_units, peak, reserving, roomy


class RandomFit:
    """Peaks of all resources, on a random machine. ``draw`` gives numbers in [0, 1), as random as the caller likes.

    A heartbeat is one machine's. With n machines that fit an executor, this one is the drawn one with probability 1/n;
    else the executor waits for the heartbeat of another. ``without`` names resources that are nobody's.
    """

    elastic = False
    by_stage = False

    def __init__(self, draw: Callable[[], float], *without: str) -> None:
        self._draw = draw
        self._choices: Choices | None = None
        self.reserves = reserving(*without)

    def demand(self, profile: Floats) -> Floats:
        """The peak of what it considers."""
        return peak(profile, self.reserves)

    def heartbeat(self, machines: Machines, machine: int, pending: Pending) -> list[Launch]:
        """In the order of asking, who draws this machine."""
        capacity, free = machines.capacity[machine], machines.available(machine)[:, 0].copy()
        choosing = self._choosing(machines, pending)
        numbers, counts = pending.waiting()
        peaks = pending.demands.peaks[numbers]
        launches: list[Launch] = []
        room = roomy(free, capacity)
        for place in np.flatnonzero(fit(peaks, free, capacity)).tolist():
            wanted, number, won = peaks[place].tolist(), int(numbers[place]), 0
            choices = int(choosing.counts[number])
            undrawn = int(counts[place])
            while undrawn > 0:
                undrawn -= self._losers(choices)
                if undrawn <= 0 or any(map(gt, wanted, room)):
                    break
                why = f"random: drawn from {choices} machines that fit"
                launches.append(Launch(pending.peek(number, won), number, machine, why))
                free -= peaks[place]
                room = roomy(free, capacity)
                won += 1
                undrawn -= 1
        return launches

    def _choosing(self, machines: Machines, pending: Pending) -> Choices:
        if self._choices is None or not self._choices.of(machines, pending.demands):
            self._choices = Choices(machines, pending.demands)
        self._choices.look()
        return self._choices

    def _losers(self, choices: int) -> int:
        """How many in a row draw another machine, with probability 1 − 1/choices each: one draw for all of them."""
        if choices == 1:
            return 0
        return int(log1p(-self._draw()) / log1p(-1 / choices))


class Static(RandomFit):
    """Spark's default: an executor holds its peak of CPU and memory for life; disk and network are nobody's."""

    def __init__(self, draw: Callable[[], float]) -> None:
        super().__init__(draw, "disk", "network")


class Dynamic(Static):
    """Spark's dynamic allocation: executors come and go with the stages, in units of <1 core, 2 GB>."""

    by_stage = True

    def demand(self, profile: Floats) -> Floats:
        """The units that cover the peak of a stage's CPU and memory."""
        return in_units(peak(profile, self.reserves))
