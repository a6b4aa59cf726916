"""What is summed up while executors run: utilization, how often a machine is beyond a threshold, the timeline."""

from __future__ import annotations

import numpy as np

from master.placement.drr import Floats
from master.placement.executors import RESOURCES
from master.placement.workers import Mask
from simulator.report import ResourceReport, Timeline

#: Of Table VI.
THRESHOLDS = (0.7, 0.9, 1.0)
_OVER = np.array(THRESHOLDS) + np.array((0.0, 0.0, 1e-6))


class Measures:
    """Sums over the slots of machines. ``reserves``: the resources of which the policy allocates."""

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
        """A slot of some machines (each machines × resources, means over the slot).

        ``wanted`` is what their executors would have taken had there been enough: as in §V.C, where resources that a
        policy does not consider are over-allocated, their utilization is derived from demand.
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
        """What copies of tasks used in a slot (resources), on machines that are not told apart: it counts as used and
        as allocated, and not in how often a machine is beyond a threshold."""
        self._used += used * self._slot_s
        self._allocated += used * self._slot_s
        self._steps[int(now_s // self._step_s)] += used * self._slot_s

    def resources(self, makespan_s: float) -> dict[str, ResourceReport]:
        """Over the makespan. Where nothing is allocated, only the utilization is known."""
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
        """``RESOURCE_over_PERCENT``: the share of the machines' time in which it is used beyond that (Table VI)."""
        slots = len(self._capacity) * makespan_s / self._slot_s
        return {
            f"{name}_over_{threshold * 100:.0f}_percent": float(self._over[row, column] / slots)
            for column, name in enumerate(RESOURCES)
            for row, threshold in enumerate(THRESHOLDS)
        }

    def timeline(self) -> Timeline:
        """From 0 on."""
        steps = range(max(self._steps, default=-1) + 1)
        total = self._capacity.sum(axis=0) * self._step_s
        nothing = np.zeros(len(RESOURCES))
        rows = [self._steps.get(step, nothing) / total for step in steps]
        return Timeline(
            step_s=self._step_s,
            used={name: [float(row[column]) for row in rows] for column, name in enumerate(RESOURCES)},
        )
