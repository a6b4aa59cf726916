"""Task rescheduling (Elasecutor §III.D): if a machine has too little to reprovision, others run the tasks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from master.placement.drr import Floats
from simulator.executors.executor_table import Parts, Rows
from simulator.executors.machines import PlannedMachines


class Rescheduling:
    """At slot boundaries, runs copies of stuck executors' tasks on other executors of the same application.

    "Our rescheduling mechanism picks the executors that have the most available resources for speculative execution.
    This would then trigger reprovisioning on the chosen executors." For one slot, the copies get the fraction of the
    executor's full-speed use that their machine has left. They speed the executor up by the same fraction.
    """

    def __init__(self, machines: PlannedMachines, parts: Parts, application_of: Callable[[int], int]) -> None:
        """``application_of`` maps an executor's key to its application."""
        self._machines = machines
        self._parts = parts
        self._application_of = application_of
        self._on: dict[int, int] = {}  # executor → the machine that runs copies of its tasks in this slot
        #: The number of executor slots in which copies ran elsewhere.
        self.count = 0

    def end_slot(self, rows: Rows) -> None:
        """Release the resources that were taken for copies."""
        for key in rows["key"][rows["helped"] > 0].tolist():
            self._machines.end(self._on.pop(key), ("copies", key))
        rows["helped"] = 0.0

    def boundary(self, rows: Rows) -> None:
        """Start copies for stuck executors."""
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
        """Return a machine with another executor of the application, and the fraction of ``wanted`` that it has free.

        ``wanted`` is one value per resource. The machine with the most free resources is chosen; None: there is none.
        """
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
