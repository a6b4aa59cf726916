"""YARN's capacity scheduler as described in Ursa §5.1.2: the machine with the most available, in the order of
asking.
"""

from __future__ import annotations

import numpy as np

from master.placement.choices import Choices
from master.placement.drr import Floats
from master.placement.executors import Launch, Machines, WaitingExecutors
from master.placement.peak import fit, peak, reserving


class MostAvailable:
    """Launches an executor on a machine's heartbeat if no other machine that fits it has more available.

    "More" compares the sum over the resources of free ÷ capacity.
    """

    elastic = False
    by_stage = False

    def __init__(self) -> None:
        self.reserves = reserving()
        self._choices: Choices | None = None

    def demand(self, profile: Floats) -> Floats:
        """Return the peak of every resource."""
        return peak(profile, self.reserves)

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
