"""The availability that nodes report for executors, as arrays: the present slot of all nodes is read at once."""

from __future__ import annotations

import numpy as np

from master.core.node import Node
from master.placement.availability import amounts, overlapped
from master.placement.drr import Floats, Ints
from penstock.model.resource_vector import RESOURCES
from penstock.wire.master_api import Availability

#: Slots that are kept of a report. The last one has the most of itself and of those after it.
_SLOTS = 64


class ReportedAvailability:
    """One row per node, in the order of the table of nodes. ``reports`` has the latest of each; ``capacity`` is rows ×
    resources, 0 where unknown, of the rows with a report.
    """

    def __init__(self) -> None:
        self.reports: list[Availability | None] = []
        self.capacity: Floats = np.zeros((0, len(RESOURCES)))
        self._slots: Floats = np.zeros((0, _SLOTS, len(RESOURCES)))
        self._counts: Ints = np.zeros(0, dtype=np.intp)  # slots of the reports; 0: none
        self._slot_s: Floats = np.ones(0)
        self._elapsed_s: Floats = np.zeros(0)  # of the first slot when it was reported
        self._at: Floats = np.zeros(0)  # when it was reported, monotonic

    def add(self) -> None:
        """Add a row without a report."""
        self.reports.append(None)
        if len(self.reports) > len(self._counts):
            for name, array in self._arrays().items():
                more = np.zeros((len(self.reports), *array.shape[1:]), array.dtype)
                setattr(self, name, np.concatenate((array, more)))
        self._counts[len(self.reports) - 1] = 0

    def take(self, row: int, node: Node) -> None:
        """Store a node's latest report, or that it has none."""
        self.reports[row] = report = node.availability
        self._counts[row] = 0
        if report is None:
            return
        slots = amounts(report.slots).T
        self.capacity[row] = capacity_of(node)
        self._counts[row] = count = min(len(slots), _SLOTS)
        self._slots[row, :count] = slots[:count]
        self._slots[row, count - 1] = slots[count - 1 :].max(axis=0)
        self._slot_s[row], self._elapsed_s[row], self._at[row] = report.slot_s, report.elapsed_s, node.availability_at

    def remove(self, row: int) -> None:
        """Remove a row; later ones move up."""
        del self.reports[row]
        for array in self._arrays().values():
            array[row:-1] = array[row + 1 :]

    def among(self, rows: Ints) -> Ints:
        """Return the places among ``rows`` of those with a report."""
        found: Ints = self._counts[rows].nonzero()[0]
        return found

    def most(self, rows: Ints, for_s: float, now: float) -> Floats:
        """Return an upper bound (rows × resources) of what is available by the reports of these rows, without later
        assignments, in the ``for_s`` seconds from now on: the exact amount where these overlap two slots at most.
        """
        elapsed_s = self._elapsed_s[rows] + np.maximum(0.0, now - self._at[rows])
        first, last = overlapped(elapsed_s, self._slot_s[rows], for_s, self._counts[rows])
        found: Floats = np.minimum(self._slots[rows, first], self._slots[rows, last])
        return found

    def _arrays(self) -> dict[str, Floats | Ints]:
        names = ("capacity", "_slots", "_counts", "_slot_s", "_elapsed_s", "_at")
        return {name: getattr(self, name) for name in names}


def capacity_of(node: Node) -> Floats:
    """Return the capacity of a node for executors; 0 where unknown."""
    if node.availability is None:
        return np.array([node.capacity.cores, 0.0, 0.0, float(node.capacity.memory_bytes)])
    capacity: Floats = amounts([node.availability.capacity])[:, 0]
    return capacity
