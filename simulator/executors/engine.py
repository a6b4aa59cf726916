"""The clock of the executor model: decisions at the machines' slot boundaries, and executors' progress in between."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import ceil

import numpy as np

from master.placement.drr import Floats, Ints
from master.placement.executors import (
    TOLERANCE,
    Demands,
    ExecutorPolicy,
    WaitingExecutors,
    machines_with_room,
)
from simulator.executors.executor_table import FIELDS, Parts, Rows, Table, row
from simulator.executors.lives import Life, lives_of
from simulator.executors.machines import PlannedMachines
from simulator.executors.measures import Measures
from simulator.executors.reprovisioning import Reprovisioning
from simulator.executors.rescheduling import Rescheduling
from simulator.executors.sharing import contended, per_machine, shares
from simulator.executors.spec import CAPACITY_KEYS, Spec
from simulator.executors.workload import Application

_MEMORY = 3
#: The engine gives up if no executor has progressed for so many slots; no valid run stalls this long.
_STALL_SLOTS = 10_000


class Engine:
    """One run. After :meth:`run` it holds the applications' start and end times, and the measures."""

    def __init__(self, spec: Spec, applications: Sequence[Application], policy: ExecutorPolicy) -> None:
        cluster = spec.cluster
        self._slot_s, self._latency_s = cluster.slot_s, cluster.latency_s
        self._policy = policy
        self._applications = applications
        lives = [lives_of(each, policy.by_stage, ceil(spec.workload.startup_s / self._slot_s)) for each in applications]
        longest = max(part.slots for life in lives for part in life)
        self._parts = Parts(longest, max(len(part.ends) for life in lives for part in life))
        slots = longest if policy.elastic else 1
        amounts = [getattr(cluster, key) for key in CAPACITY_KEYS]
        self._capacity: Floats = np.tile(np.array(amounts), (cluster.machines, 1))
        self._machines = PlannedMachines([f"m{index}" for index in range(cluster.machines)], self._capacity, slots)
        self._pending = WaitingExecutors(Demands(slots))
        self._plans = Table(slots)
        self._chains = [self._chain(life, each.name) for life, each in zip(lives, applications, strict=True)]
        self._loss = np.array([0.0, cluster.disk_contention, 0.0, 0.0])
        phases = min(cluster.phases, cluster.machines)
        self._groups = [np.arange(phase, cluster.machines, phases) for phase in range(phases)]
        self._rows: list[Rows] = [np.zeros(0, dtype=FIELDS) for _ in range(phases)]
        self._reprovisioning = Reprovisioning(self._machines, self._plans, self._parts, spec.policy, self._slot_s)
        self._reschedules = spec.policy.rescheduling and spec.policy.reprovisioning
        self._rescheduling = Rescheduling(self._machines, self._parts, lambda key: self._who[key][0])
        self._arrivals: list[tuple[float, int, int, int]] = []  # time, key, application, place in its chain
        self._who: list[tuple[int, int]] = []  # key → application, place in its chain
        self.measures = Measures(self._capacity, policy.reserves, self._slot_s, spec.timeline_step_s)
        self.left = [each.executors for each in applications]
        self.started_at_s = [np.inf] * len(applications)
        self.ended_at_s = [0.0] * len(applications)
        self.launches = 0
        #: The number of profile slots that all executors together have completed.
        self.progress = 0.0
        self._moved = 0

    @property
    def reprovisioned(self) -> int:
        """Return the number of reprovisionings (§III.C)."""
        return self._reprovisioning.count

    @property
    def rescheduled(self) -> int:
        """Return the number of executor slots in which copies of the executor's tasks ran elsewhere (§III.D)."""
        return self._rescheduling.count

    def _chain(self, life: list[Life], name: str) -> list[int]:
        """Return the numbers of an executor's parts; a part's demand and first plan have the same number."""
        chain = []
        for part in life:
            number, new = self._parts.number(part.profile, part.ends)
            if new:
                demand = self._policy.demand(part.profile)
                self._check(demand.max(axis=1), name)
                self._pending.demands.add(demand)
                self._plans.add(np.where(self._policy.reserves[:, None], demand, np.inf).T)
            chain.append(number)
        return chain

    def _check(self, peak: Floats, name: str) -> None:
        for key, wanted, there in zip(CAPACITY_KEYS, peak, self._capacity[0], strict=True):
            if wanted > there * (1 + TOLERANCE):
                raise ValueError(
                    f"application {name!r}: an executor holds up to {wanted:g} where cluster.{key} is {there:g}; "
                    "it would never be placed"
                )

    def run(self) -> None:
        """Run until every executor has ended."""
        for index, application in enumerate(self._applications):
            for _ in range(application.executors):
                self._arrive(application.at_s, index, 0)
        step, phases = 0, len(self._groups)
        step_s = self._slot_s / phases
        unfinished = sum(self.left)
        while unfinished:
            if step - self._moved > _STALL_SLOTS * phases:
                raise RuntimeError(f"no executor has made progress for {_STALL_SLOTS} slots, until {step * step_s:g} s")
            if not len(self._pending) and not any(map(len, self._rows)):
                step = max(step, ceil((self._arrivals[0][0] + self._latency_s) / step_s - 1e-9))
                self._moved = step
            before = self.progress
            unfinished -= self._boundary(step % phases, step * step_s)
            self._moved = step if self.progress > before else self._moved
            step += 1

    def _arrive(self, at_s: float, application: int, place: int) -> None:
        heappush(self._arrivals, (at_s, len(self._who), application, place))
        self._who.append((application, place))

    def _boundary(self, phase: int, now_s: float) -> int:
        """End a slot of a group of machines and simulate the next; return the number of executors that end in it."""
        while self._arrivals and self._arrivals[0][0] + self._latency_s <= now_s + 1e-9:
            _, key, application, place = heappop(self._arrivals)
            self._pending.add(key, self._chains[application][place], rank=application)
        if not len(self._pending) and not len(self._rows[phase]):
            return 0
        rows = self._settle(phase, now_s)
        if self._policy.elastic:
            self._reprovisioning.boundary(rows, now_s)
            if self._reschedules:
                self._rescheduling.boundary(rows)
        rows = np.concatenate([rows, *self._launch(self._groups[phase], now_s)])
        self._rows[phase] = rows
        return self._advance(phase, rows, now_s) if len(rows) else 0

    def _settle(self, phase: int, now_s: float) -> Rows:
        """Advance plans by one slot, and release the resources of ended executors; return the rows of the others."""
        rows = self._rows[phase]
        if self._policy.elastic:
            for machine in self._groups[phase].tolist():
                self._machines.tick(machine)
            rows["at"] += 1
            self._reprovisioning.end_observation(rows)
            self._rescheduling.end_slot(rows)
        done = rows["ended_at_s"] + self._latency_s <= now_s + 1e-9
        for ended in rows[done]:
            self._machines.end(int(ended["machine"]), int(ended["key"]))
            if ended["plan"] != ended["part"]:
                self._plans.give_back(int(ended["plan"]))
        return rows[~done]

    def _launch(self, group: Ints, now_s: float) -> list[Rows]:
        """Handle the heartbeats of a group of machines; return the rows of the launched executors."""
        made = []
        for machine in machines_with_room(self._machines, group, self._pending):
            for launch in self._policy.heartbeat(self._machines, machine, self._pending):
                key = self._pending.take(launch.demand)
                assert key == launch.executor and isinstance(key, int)
                self._machines.launch(machine, key, self._pending.demands.of(launch.demand))
                application = self._who[key][0]
                self.started_at_s[application] = min(self.started_at_s[application], now_s)
                part = launch.demand
                truth = self._applications[application]
                length = self._parts.ends[part, -1]
                made.append(
                    row(
                        key=key,
                        machine=machine,
                        part=part,
                        plan=part,
                        length=length,
                        stage_since_s=now_s,
                        factor=truth.factor,
                        stretch=truth.stretch,
                    )
                )
        self.launches += len(made)
        return made

    def _advance(self, phase: int, rows: Rows, now_s: float) -> int:
        """Simulate one slot: each executor progresses as its limits and the machine's other executors allow."""
        seen_at = np.minimum((rows["position"] + 1e-9).astype(np.intp), rows["length"] - 1)
        truth = self._parts.profiles.values[rows["part"], seen_at] * rows["factor"]
        limit = self._plans.values[rows["plan"], rows["at"]] + rows["extra"]
        truth[np.isfinite(rows["ended_at_s"])] = 0.0
        pace = np.divide(limit, truth, out=np.ones_like(limit), where=truth > 0).min(axis=1).clip(0.0, 1.0)
        local = rows["machine"] // len(self._groups)
        group = self._groups[phase]
        wanted = truth * pace[:, None]
        speed = pace * shares(wanted, local, contended(wanted, local, self._capacity[group], self._loss))
        left = (rows["length"] - rows["position"]) * rows["stretch"]
        alive = np.isinf(rows["ended_at_s"])
        whole = speed + rows["helped"]
        ends = alive & (whole >= left - 1e-9)
        lasted = np.where(ends, np.divide(left, whole, out=np.ones_like(left), where=whole > 0).clip(0.0, 1.0), 1.0)
        used = truth * speed[:, None]
        used[:, _MEMORY] = np.minimum(truth, limit)[:, _MEMORY]
        rows["used"], rows["seen_at"], rows["bounded"] = used, seen_at, pace < 1
        done = np.where(alive, whole * lasted, 0.0)
        rows["position"] += done / rows["stretch"]
        self.progress += float(done.sum())
        rows["ended_at_s"][ends] = now_s + lasted[ends] * self._slot_s
        held = np.where(np.isfinite(limit), limit, 0.0) * lasted[:, None]
        sums = [
            per_machine(each, local, len(group)) for each in (used * lasted[:, None], held, truth * lasted[:, None])
        ]
        self.measures.slot(now_s, *sums)
        if rows["helped"].any():
            self.measures.elsewhere(now_s, (truth * (rows["helped"] * lasted)[:, None]).sum(axis=0))
        return sum(self._ended(int(each["key"]), float(each["ended_at_s"])) for each in rows[ends])

    def _ended(self, key: int, at_s: float) -> int:
        """Handle the end of an executor's part: return 1 if it was the last, else 0, after queueing the next part."""
        application, place = self._who[key]
        if place + 1 < len(self._chains[application]):
            self._arrive(at_s, application, place + 1)
            return 0
        self.left[application] -= 1
        self.ended_at_s[application] = max(self.ended_at_s[application], at_s)
        return 1
