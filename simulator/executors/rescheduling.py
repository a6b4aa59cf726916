"""Task rescheduling (Elasecutor §III.D): where a machine has too little to reprovision, others carry out the tasks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from master.placement.drr import Floats
from master.placement.executors import Machines
from simulator.executors.running import Parts, Rows


class Rescheduling:
    """At a slot's boundary: copies of the tasks of those that are stuck run on other executors of their application.

    "Our rescheduling mechanism picks the executors that have the most available resources for speculative execution.
    This would then trigger reprovisioning on the chosen executors": for one slot the copies get what their machine has
    left of what the executor would use at full speed, and speed it up by as large a fraction.
    """

    def __init__(self, machines: Machines, parts: Parts, application_of: Callable[[int], int]) -> None:
        """``application_of`` an executor's key."""
        self._machines = machines
        self._parts = parts
        self._application_of = application_of
        self._on: dict[int, int] = {}  # executor → the machine that runs copies of its tasks in this slot
        #: Slots of executors in which others helped.
        self.count = 0

    def end_slot(self, rows: Rows) -> None:
        """What was taken for copies goes back."""
        for key in rows["key"][rows["helped"] > 0].tolist():
            self._machines.end(self._on.pop(key), ("copies", key))
        rows["helped"] = 0.0

    def boundary(self, rows: Rows) -> None:
        """Find help for those that are stuck."""
        for index in np.flatnonzero(rows["stuck"]).tolist():
            key = int(rows["key"][index])
            seen_at = min(int(rows["position"][index] + 1e-9), int(rows["length"][index]) - 1)
            wanted = self._parts.profiles.values[rows["part"][index], seen_at] * rows["factor"][index]
            found = self._most_available(key, int(rows["machine"][index]), wanted)
            if found is None:
                continue
            machine, fraction = found
            self._machines.launch(machine, ("copies", key), (wanted * fraction)[:, None])
            self._on[key] = machine
            rows["helped"][index] = fraction
            self.count += 1

    def _most_available(self, key: int, own: int, wanted: Floats) -> tuple[int, float] | None:
        """A machine with another executor of the application, and which part of ``wanted`` (resources) it has."""
        best, most = None, 0.0
        for machine in range(len(self._machines)):
            if machine == own or not self._has_sibling(machine, key):
                continue
            free = np.maximum(self._machines.available(machine)[:, 0], 0.0)
            fraction = float(np.divide(free, wanted, out=np.ones_like(free), where=wanted > 0).min())
            room = float((free / self._machines.capacity[machine]).sum())
            if fraction > 0 and room > most:
                best, most = (machine, min(1.0, fraction)), room
        return best

    def _has_sibling(self, machine: int, key: int) -> bool:
        application = self._application_of(key)
        return any(
            isinstance(other, int) and self._application_of(other) == application
            for other in self._machines.executors(machine)
        )
