"""Measures of a run of executors: utilization, the share of time beyond thresholds, and the timeline."""

from __future__ import annotations

import numpy as np

from master.placement.drr import Floats
from master.placement.executors import RESOURCES
from master.placement.workers import Mask
from simulator.report import ResourceReport, Timeline

#: The thresholds of Table VI, as fractions of capacity.
THRESHOLDS = (0.7, 0.9, 1.0)
_OVER = np.array(THRESHOLDS) + np.array((0.0, 0.0, 1e-6))


class Measures:
    """Sums over the slots of machines. ``reserves`` marks the resources that the policy allocates."""

    def __init__(self, capacity: Floats, reserves: Mask, slot_s: float, step_s: float) -> None:
        self._capacity = capacity
        self._reserves = reserves
        self._slot_s = slot_s
        self._step_s = step_s
        self._used = np.zeros(len(RESOURCES))
        self._allocated = np.zeros(len(RESOURCES))
        self._over = np.zeros((len(THRESHOLDS), len(RESOURCES)))
        self._steps: dict[int, Floats] = {}

    def slot(self, now_s: float, used: Floats, allocated: Floats, wanted: Floats) -> None:
        """Add a slot of some machines; each array is machines × resources, means over the slot.

        ``wanted`` is the executors' demand without contention. As in §V.C, the utilization of resources that the policy
        ignores, and so over-allocates, is derived from demand.
        """
        self._used += used.sum(axis=0) * self._slot_s
        self._allocated += allocated.sum(axis=0) * self._slot_s
        shown = np.where(self._reserves, used, wanted) / self._capacity[: len(used)]
        self._over += (shown[None] > _OVER[:, None, None]).sum(axis=1)
        step = int(now_s // self._step_s)
        if step not in self._steps:
            self._steps[step] = np.zeros(len(RESOURCES))
        self._steps[step] += used.sum(axis=0) * self._slot_s

    def elsewhere(self, now_s: float, used: Floats) -> None:
        """Add the use (resources) of task copies in a slot: it counts as used and as allocated.

        Their machines are not recorded, so the copies do not count in the time beyond thresholds.
        """
        self._used += used * self._slot_s
        self._allocated += used * self._slot_s
        self._steps[int(now_s // self._step_s)] += used * self._slot_s

    def resources(self, makespan_s: float) -> dict[str, ResourceReport]:
        """Return a report per resource over the makespan; only the utilization for resources without allocations."""
        total = self._capacity.sum(axis=0) * makespan_s
        reports = {}
        for column, name in enumerate(RESOURCES):
            utilization = float(self._used[column] / total[column])
            if not self._reserves[column]:
                reports[name] = ResourceReport(utilization=utilization)
                continue
            allocated = float(self._allocated[column])
            reports[name] = ResourceReport(
                utilization=utilization,
                scheduling_efficiency=allocated / float(total[column]),
                utilization_efficiency=float(self._used[column]) / allocated if allocated else None,
            )
        return reports

    def over(self, makespan_s: float) -> dict[str, float]:
        """Return ``RESOURCE_over_PERCENT``: the share of machine time with use beyond the threshold (Table VI)."""
        slots = len(self._capacity) * makespan_s / self._slot_s
        return {
            f"{name}_over_{threshold * 100:.0f}_percent": float(self._over[row, column] / slots)
            for column, name in enumerate(RESOURCES)
            for row, threshold in enumerate(THRESHOLDS)
        }

    def timeline(self) -> Timeline:
        """Return the utilization over time, from time 0."""
        steps = range(max(self._steps, default=-1) + 1)
        total = self._capacity.sum(axis=0) * self._step_s
        nothing = np.zeros(len(RESOURCES))
        rows = [self._steps.get(step, nothing) / total for step in steps]
        return Timeline(
            step_s=self._step_s,
            used={name: [float(row[column]) for row in rows] for column, name in enumerate(RESOURCES)},
        )
