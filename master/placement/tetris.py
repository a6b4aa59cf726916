"""Tetris (Elasecutor §V.A.2, Ursa §5.1.2): the executor whose peak demand best matches the available resources."""

from __future__ import annotations

import numpy as np

from master.placement.drr import Floats
from master.placement.executors import Launch, Machines, WaitingExecutors
from master.placement.peak import fit, peak, reserving


class Tetris:
    """Chooses the largest dot product of peak demand and availability, each a fraction of the capacity.

    ``without`` names ignored resources: Ursa's Tetris2 ignores the network.
    """

    elastic = False
    by_stage = False

    def __init__(self, *without: str) -> None:
        self.reserves = reserving(*without)

    def demand(self, profile: Floats) -> Floats:
        """Return the peak of the considered resources."""
        return peak(profile, self.reserves)

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
