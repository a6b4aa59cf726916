"""Which machines could take which peak, brought up to date where something changed: no heartbeat compares them all."""

from __future__ import annotations

import numpy as np

from master.placement.drr import Floats, Ints
from master.placement.executors import Demands, Machines
from master.placement.peak import fit
from master.placement.workers import Mask


class Choices:
    """Of all demands (n) and machines (m), as of the last :meth:`look`.

    ``fits`` is n × m, ``counts`` (n) how many machines each peak fits, ``shares`` (m) the sum over the resources of
    free ÷ capacity.
    """

    def __init__(self, machines: Machines, demands: Demands) -> None:
        self._machines = machines
        self._demands = demands
        self._seen = machines.changes
        free = machines.free()
        self.shares: Floats = (free / machines.capacity).sum(axis=1)
        self.fits: Mask = np.zeros((0, len(machines)), dtype=np.bool_)
        self.counts: Ints = np.zeros(0, dtype=np.intp)
        self._add(free)

    def of(self, machines: Machines, demands: Demands) -> bool:
        """Whether it is of these."""
        return self._machines is machines and self._demands is demands

    def look(self) -> None:
        """Heed what was launched, what ended, and which demands are new."""
        machines, known = self._machines, len(self.counts)
        peaks = self._demands.peaks[:known]
        for machine in machines.changed_since(self._seen):
            free, capacity = machines.available(machine)[:, 0], machines.capacity[machine]
            fits = fit(peaks, free, capacity)
            self.counts += fits
            self.counts -= self.fits[:, machine]
            self.fits[:, machine] = fits
            self.shares[machine] = (free / capacity).sum()
        self._seen = machines.changes
        if len(self._demands) > known:
            self._add(machines.free())

    def _add(self, free: Floats) -> None:
        known, capacity = len(self.counts), self._machines.capacity
        rows = [fit(peak, free, capacity) for peak in self._demands.peaks[known : len(self._demands)]]
        self.fits = np.concatenate((self.fits, np.array(rows, dtype=np.bool_).reshape(len(rows), len(free))))
        self.counts = np.concatenate((self.counts, self.fits[known:].sum(axis=1)))
