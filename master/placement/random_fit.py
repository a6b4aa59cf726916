"""Placement on a random fitting machine, and Spark's policies that use it: static and dynamic (§V.A.2, §V.B)."""

from __future__ import annotations

from collections.abc import Callable
from math import log1p
from operator import gt

import numpy as np

from master.placement.choices import Choices
from master.placement.drr import Floats
from master.placement.executors import Launch, Machines, WaitingExecutors
from master.placement.peak import fit, in_units, peak, reserving, roomy
from penstock.model.units import counted


class RandomFit:
    """Reserves peaks of all resources, on a random machine. ``draw`` returns random numbers in [0, 1).

    A heartbeat concerns one machine. With n machines that fit an executor, this one is drawn with probability 1/n;
    otherwise the executor waits for another machine's heartbeat. ``without`` names resources that are not reserved.
    """

    elastic = False
    by_stage = False

    def __init__(self, draw: Callable[[], float], *without: str) -> None:
        self._draw = draw
        self._choices: Choices | None = None
        self.reserves = reserving(*without)

    def demand(self, profile: Floats) -> Floats:
        """Return the peak of the reserved resources."""
        return peak(profile, self.reserves)

    def heartbeat(self, machines: Machines, machine: int, pending: WaitingExecutors) -> list[Launch]:
        """Launch, in the order of asking, the executors that draw this machine."""
        capacity, free = machines.capacity[machine], machines.available(machine)[:, 0].copy()
        self._choices = choosing = Choices.now(self._choices, machines, pending.demands)
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
                why = f"random: drawn from {counted(choices, 'machine')} with room"
                launches.append(Launch(pending.peek(number, won), number, machine, why))
                free -= peaks[place]
                room = roomy(free, capacity)
                won += 1
                undrawn -= 1
        return launches

    def _losers(self, choices: int) -> int:
        """Return how many in a row draw another machine, each with probability 1 − 1/choices, by a single draw."""
        if choices == 1:
            return 0
        return int(log1p(-self._draw()) / log1p(-1 / choices))


class Static(RandomFit):
    """Spark's default: an executor holds its peak of CPU and memory for life; disk and network are not reserved."""

    def __init__(self, draw: Callable[[], float]) -> None:
        super().__init__(draw, "disk", "network")


class Dynamic(Static):
    """Spark's dynamic allocation: executors come and go with the stages, in units of <1 core, 2 GB>."""

    by_stage = True

    def demand(self, profile: Floats) -> Floats:
        """Return the units that cover the peak of a stage's CPU and memory."""
        return in_units(peak(profile, self.reserves))
