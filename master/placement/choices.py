"""Which machines fit which peaks, updated on changes only, so that no heartbeat compares all of them."""

from __future__ import annotations

import numpy as np

from master.placement.drr import Floats, Ints
from master.placement.executors import Demands, Machines
from master.placement.peak import fit
from master.placement.workers import Mask


class Choices:
    """Fits of all demands (n) on all machines (m), as of the last :meth:`look`.

    ``fits`` is n × m, ``counts`` (n) is the number of machines each peak fits, ``shares`` (m) the sum over the
    resources of free ÷ capacity.
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
        """Return whether this describes these machines and demands."""
        return self._machines is machines and self._demands is demands

    @classmethod
    def now(cls, before: Choices | None, machines: Machines, demands: Demands) -> Choices:
        """Return the present choices: those from ``before``, updated, if they are of these machines and demands."""
        if before is None or not before.of(machines, demands):
            before = cls(machines, demands)
        before.look()
        return before

    def look(self) -> None:
        """Update for launches, ends, and new demands."""
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
