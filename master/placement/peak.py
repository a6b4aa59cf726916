"""The policies that reserve an executor's peaks, with which Elasecutor is compared (§V.A.2): Tetris, YARN's capacity
scheduler, a random fit, and Spark's static and dynamic allocation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import log1p
from operator import gt

import numpy as np

from master.placement.drr import Floats, Ints
from master.placement.executors import RESOURCES, TOLERANCE, Demands, Launch, Machines, WaitingExecutors
from master.placement.workers import Mask
from penstock.model.units import counted

#: Spark's dynamic allocation gives multiples of <1 core, 2 GB> (§V.A.2).
UNIT_CORES, UNIT_BYTES = 1.0, 2e9
_CPU, _MEMORY = RESOURCES.index("cpu"), RESOURCES.index("memory")


class PeakPolicy:
    """An executor holds its peak of each resource for life; resources named in ``without`` are not reserved."""

    elastic = False
    by_stage = False

    def __init__(self, *without: str) -> None:
        self.reserves: Mask = np.array([name not in without for name in RESOURCES])

    def demand(self, profile: Floats) -> Floats:
        """Return the peak of each reserved resource, 0 for the others (resources × 1)."""
        held: Floats = np.where(self.reserves, profile.max(axis=1), 0.0)[:, None]
        return held


class Tetris(PeakPolicy):
    """The executor whose peak demand best matches the available resources (also Ursa §5.1.2): the largest dot product
    of both, each a fraction of the capacity. Ursa's Tetris2 ignores the network.
    """

    def heartbeat(self, machines: Machines, machine: int, pending: WaitingExecutors) -> list[Launch]:
        """Launch the best match first, until no executor fits; ties go to the one that waits longest."""
        capacity, free = machines.capacity[machine], machines.available(machine)[:, 0].copy()
        numbers, counts = pending.waiting()
        peaks, taken = pending.demands.peaks[numbers], np.zeros_like(counts)
        launches: list[Launch] = []
        while (fits := fit(peaks, free, capacity) & (taken < counts)).any():
            products = np.where(fits, (peaks / capacity) @ (free / capacity), -np.inf)
            best = int(products.argmax())
            number = int(numbers[best])
            why = f"tetris: peak demand · available = {products[best]:.3f}, the largest of {np.count_nonzero(fits)}"
            launches.append(Launch(pending.peek(number, int(taken[best])), number, machine, why))
            free -= peaks[best]
            taken[best] += 1
        return launches


class MostAvailable(PeakPolicy):
    """YARN's capacity scheduler as described in Ursa §5.1.2: the machine with the most available, in the order of
    asking.

    On a machine's heartbeat an executor is launched if no other machine that fits it has more available: a larger sum
    over the resources of free ÷ capacity.
    """

    def __init__(self) -> None:
        super().__init__()
        self._choices: Choices | None = None

    def heartbeat(self, machines: Machines, machine: int, pending: WaitingExecutors) -> list[Launch]:
        """Launch, in the order of asking, the executors that have no better machine.

        One pass suffices: while this machine fills, it only becomes worse for the executors not launched yet.
        """
        capacity, free = machines.capacity[machine], machines.available(machine)[:, 0].copy()
        self._choices = choices = Choices.now(self._choices, machines, pending.demands)
        shares = choices.shares.copy()
        shares[machine] = -np.inf
        numbers, counts = pending.waiting()
        peaks = pending.demands.peaks[numbers]
        fits = fit(peaks, free, capacity)
        top = int(shares.argmax())
        # most waiting executors fit on `top`, and need no comparison with all machines
        if shares[top] > (free / capacity).sum():
            fits &= ~choices.fits[numbers, top]
        launches: list[Launch] = []
        for place in np.flatnonzero(fits).tolist():
            wanted, number = peaks[place], int(numbers[place])
            best = shares[choices.fits[number]].max()
            for turn in range(int(counts[place])):
                share = float((free / capacity).sum())
                if share < best or not fit(wanted[None], free, capacity)[0]:
                    break
                why = f"capacity: free ÷ capacity sums to {share:.3f} here and at most {max(best, 0.0):.3f} elsewhere"
                launches.append(Launch(pending.peek(number, turn), number, machine, why))
                free -= wanted
        return launches


class RandomFit(PeakPolicy):
    """A random machine of those that fit. ``draw`` returns random numbers in [0, 1).

    A heartbeat concerns one machine. With n machines that fit an executor, this one is drawn with probability 1/n;
    otherwise the executor waits for another machine's heartbeat.
    """

    def __init__(self, draw: Callable[[], float], *without: str) -> None:
        super().__init__(*without)
        self._draw = draw
        self._choices: Choices | None = None

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
    """Spark's dynamic allocation: executors come and go with the stages, in units of <1 core, 2 GB> (§V.B)."""

    by_stage = True

    def demand(self, profile: Floats) -> Floats:
        """Return the units that cover the peak of a stage's CPU and memory."""
        peak = super().demand(profile)
        units = np.ceil(max(peak[_CPU, 0] / UNIT_CORES, peak[_MEMORY, 0] / UNIT_BYTES) - TOLERANCE)
        held = np.zeros_like(peak)
        held[_CPU], held[_MEMORY] = units * UNIT_CORES, units * UNIT_BYTES
        return held


class Choices:
    """Fits of all demands (n) on all machines (m), as of the last :meth:`look`: updated on changes only, so that no
    heartbeat compares all of them.

    ``fits`` is n × m, ``counts`` (n) is the number of machines each peak fits, ``shares`` (m) the sum over the
    resources of free ÷ capacity.
    """

    def __init__(self, machines: Machines, demands: Demands) -> None:
        self.machines = machines
        self.demands = demands
        self._seen = machines.changes
        free = machines.free()
        self.shares: Floats = (free / machines.capacity).sum(axis=1)
        self.fits: Mask = np.zeros((0, len(machines)), dtype=np.bool_)
        self.counts: Ints = np.zeros(0, dtype=np.intp)
        self._add(free)

    @classmethod
    def now(cls, before: Choices | None, machines: Machines, demands: Demands) -> Choices:
        """Return the present choices: those from ``before``, updated, if they are of these machines and demands."""
        if before is None or before.machines is not machines or before.demands is not demands:
            return cls(machines, demands)
        before.look()
        return before

    def look(self) -> None:
        """Update for launches, ends, and new demands."""
        machines, known = self.machines, len(self.counts)
        peaks = self.demands.peaks[:known]
        for machine in machines.changed_since(self._seen):
            free, capacity = machines.available(machine)[:, 0], machines.capacity[machine]
            fits = fit(peaks, free, capacity)
            self.counts += fits
            self.counts -= self.fits[:, machine]
            self.fits[:, machine] = fits
            self.shares[machine] = (free / capacity).sum()
        self._seen = machines.changes
        if len(self.demands) > known:
            self._add(machines.free())

    def _add(self, free: Floats) -> None:
        known, capacity = len(self.counts), self.machines.capacity
        rows = [fit(peak, free, capacity) for peak in self.demands.peaks[known : len(self.demands)]]
        self.fits = np.concatenate((self.fits, np.array(rows, dtype=np.bool_).reshape(len(rows), len(free))))
        self.counts = np.concatenate((self.counts, self.fits[known:].sum(axis=1)))


def roomy(free: Floats, capacity: Floats) -> list[float]:
    """Return the largest peak that fits one machine (resources): :func:`fit` for one peak, in plain numbers."""
    room: list[float] = (free + TOLERANCE * capacity).tolist()
    return room


def fit(peaks: Floats, free: Floats, capacity: Floats) -> Mask:
    """Return which peaks fit a machine, or which machines fit a peak: one of the two is n × resources."""
    # For four columns, three "and" operations are several times as fast as a reduction of each row.
    fits: Mask = reduce(np.logical_and, (peaks <= free + TOLERANCE * capacity).T)
    return fits
