"""Dynamic reprovisioning (Elasecutor §III.C), and new plans for late executors."""

from __future__ import annotations

import numpy as np

from agent.core.reprovisioning import rescaled
from master.placement.drr import Ints
from simulator.executors.executor_table import Parts, Rows, Table
from simulator.executors.machines import PlannedMachines
from simulator.executors.spec import Policy


class Reprovisioning:
    """The replacement of plans at slot boundaries, for executors that no longer follow them.

    A plan's time and an executor's progress are compared slot by slot. A late executor keeps the limits of its current
    profile slot; a new plan starts from there, within the room that other executors leave.
    """

    def __init__(self, machines: PlannedMachines, plans: Table, parts: Parts, policy: Policy, slot_s: float) -> None:
        self._machines = machines
        self._plans = plans
        self._parts = parts
        self._policy = policy
        self._slot_s = slot_s
        self._observing: dict[int, int] = {}  # machine → key of the executor that gets its whole rest in this slot
        self.count = 0

    def end_observation(self, rows: Rows) -> None:
        """End the monitoring period: release the resources that were given for it."""
        for machine in np.unique(rows["machine"][rows["observed"]]).tolist():
            self._machines.end(machine, ("observed", self._observing.pop(machine)))
        rows["extra"] = 0.0

    def boundary(self, rows: Rows, now_s: float) -> None:
        """Replan executors that were observed or are late, then begin to observe executors whose stage is overdue."""
        if not len(rows):
            return
        alive = np.isinf(rows["ended_at_s"])
        observed = rows["observed"] & alive
        for index in np.flatnonzero(observed).tolist():
            self._rescale(rows, index)
        rows["observed"] = False
        done = (rows["position"] + 1e-9).astype(np.intp)
        late = done != rows["origin"] + rows["at"]  # or early, if copies of its tasks ran elsewhere
        for index in np.flatnonzero((late | observed) & alive).tolist():
            self._replan(rows, index, int(done[index]))
        if self._policy.reprovisioning:
            self._watch(rows, alive, now_s)

    def _rescale(self, rows: Rows, index: int) -> None:
        """Scale the plan by usage ÷ prediction, for every resource with a prediction above zero.

        An executor that used up its limit of one resource is held back in the others, too: its use of those understates
        its demand ("obscured", §III.C). Then nothing is scaled down; otherwise an executor observed on a full machine
        would be left with nothing for good.
        """
        predicted = self._parts.profiles.values[rows["part"][index], rows["seen_at"][index]]
        bounded = bool(rows["bounded"][index])
        rows["scale"][index] = rescaled(rows["scale"][index], rows["used"][index], predicted, bounded=bounded)

    def _replan(self, rows: Rows, index: int, done: int) -> None:
        """Plan the executor anew from slot ``done`` of its profile on."""
        part, length = int(rows["part"][index]), int(rows["length"][index])
        wanted = self._parts.profiles.values[part, done:length] * rows["scale"][index]
        granted = self._machines.replan(int(rows["machine"][index]), int(rows["key"][index]), wanted.T)
        if rows["plan"][index] == part:
            rows["plan"][index] = self._plans.add(granted.T)
        else:
            self._plans.set(int(rows["plan"][index]), granted.T)
        rows["origin"][index], rows["at"][index] = done, 0

    def _watch(self, rows: Rows, alive: Ints, now_s: float) -> None:
        """Give executors whose stage took > ρ × its predicted time the machine's rest for one slot, once a stage."""
        stage = self._parts.stage_of(rows["part"], rows["position"] + 1e-9)
        entered = stage != rows["stage"]
        rows["stage"] = stage
        rows["stage_since_s"][entered] = now_s
        rows["reprovisioned"][entered] = False
        ends = np.concatenate((np.zeros((len(self._parts.ends), 1), dtype=np.intp), self._parts.ends), axis=1)
        within = np.minimum(stage, self._parts.ends.shape[1] - 1)
        begins = ends[rows["part"], within]
        predicted_s = (ends[rows["part"], within + 1] - begins) * self._slot_s
        elapsed_s = now_s - rows["stage_since_s"]
        overdue = elapsed_s > self._policy.rho * predicted_s + 1e-9
        behind = elapsed_s > (rows["position"] - begins) * self._slot_s + 1e-9
        rows["stuck"] = alive & rows["watched"] & rows["bounded"] & behind
        for index in np.flatnonzero(overdue & alive & ~rows["reprovisioned"]).tolist():
            machine, key = int(rows["machine"][index]), int(rows["key"][index])
            extra = np.maximum(self._machines.available(machine)[:, :1], 0.0)
            if machine in self._observing or not extra.any():
                rows["stuck"][index] = rows["bounded"][index]  # the machine has nothing to give in this slot (§III.D)
                continue
            rows["watched"][index] = True
            self._machines.launch(machine, ("observed", key), extra.copy())
            self._observing[machine] = key
            rows["extra"][index] = extra[:, 0]
            rows["observed"][index] = rows["reprovisioned"][index] = True
            self.count += 1
