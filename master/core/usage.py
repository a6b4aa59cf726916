"""Measured use of executors, assembled from their nodes' reports (Elasecutor §III.A) into one complete run each.

A report's last part and the executor's end arrive in either order. A run is stored when both have arrived, the executor
ended well, and no slot is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from master.core.forecasts import key_of
from master.core.instructions import StoreRun
from master.core.job import Job, Key, Task
from master.placement.availability import amounts
from master.prediction.runs import LEAST_PART, Run, Settings
from penstock.model import Ended, EndedBy
from penstock.model.units import counted
from penstock.wire.master_api import ExecutorUse, SlotAmounts

#: Largest number of slots assembled for an executor; agents double the slot's length before that.
MOST_SLOTS = 10_000
#: Largest number of executors that ended well and wait for their last part.
_MOST_WAITING = 256
#: Exit status of a program without an end of its own, which engines stop as they stop workers: 128 + SIGTERM.
_TERMINATED = 143


@dataclass(slots=True)
class _Report:
    """The report on one executor on one node. A report from slot 0 on clears ``missing``, the missing slots."""

    node: str
    slot_s: float = 0.0
    slots: int = 0
    mean: list[SlotAmounts | None] = field(default_factory=list)
    peak: list[SlotAmounts | None] = field(default_factory=list)
    stages: list[int] = field(default_factory=list)
    last_part: float = 1.0
    missing: str = "nothing was reported"
    complete: bool = False
    identity: tuple[str, str, Settings] | None = None  # its application, run and settings, once it has ended well
    stuck: bool = False

    def add(self, use: ExecutorUse) -> None:
        """Add the next part, or start again from slot 0."""
        if use.first == 0:
            self.slot_s, self.slots, self.mean, self.peak, self.missing = use.slot_s, 0, [], [], ""
        if not self.missing and (use.first != self.slots or use.slot_s != self.slot_s):
            self.missing = f"slots {self.slots} to {use.first} were not reported"
        if not self.missing and len(use.mean) != len(use.peak):
            self.missing = (
                f"{counted(len(use.mean), 'mean')} and {counted(len(use.peak), 'peak')} from slot {use.first} on"
            )
        if not self.missing and [*map(bool, use.mean)] != [*map(bool, use.peak)]:
            self.missing = f"from slot {use.first} on a slot has a mean and no peak, or a peak and no mean"
        if not self.missing and self.slots + len(use.mean) > MOST_SLOTS:
            self.missing = f"more than {MOST_SLOTS} slots were reported"
        if self.missing:
            self.mean, self.peak = [], []
        elif use.mean:
            self.mean += use.mean
            self.peak += use.peak
            self.slots += len(use.mean)
        self.stages, self.last_part = list(use.stages), use.last_part
        self.complete |= use.ended

    def run(self, settings: Settings) -> Run:
        """Return the whole run, without the ends of stages where they do not match it."""
        mean = amounts(self.mean)
        peak = np.maximum(amounts(self.peak), mean)
        ends = [0, *self.stages]
        fits = bool(self.stages) and ends[-1] == self.slots and all(a < b for a, b in pairwise(ends))
        return Run(settings, mean, peak, tuple(self.stages) if fits else (), max(LEAST_PART, self.last_part))


class UsageReports:
    """Reports by executor. Of those that ended well and wait for their last part, the oldest go first."""

    def __init__(self) -> None:
        self._reports: dict[Key, _Report] = {}
        self._waiting: dict[Key, None] = {}

    def __len__(self) -> int:
        return len(self._reports)

    def reported(self, node: str, use: ExecutorUse, *, held: bool) -> tuple[StoreRun | None, str]:
        """Add a part of a report; return the run to store, or why there is none. ``held``: it is there now."""
        key = (use.job, use.task)
        known = self._reports.get(key)
        if known is None or known.node != node:
            if not held:
                return None, ""  # requeued or cancelled, and its node did not know yet
            known = self._reports[key] = _Report(node)
        known.add(use)
        return self._finish(key, known)

    def gets_stuck(self, node: str, use: ExecutorUse) -> bool:
        """Return whether the executor is stuck there and was not in the last report."""
        known = self._reports.get((use.job, use.task))
        if known is None or known.node != node:
            return False
        before, known.stuck = known.stuck, use.stuck
        return use.stuck and not before

    def ended(self, job: Job, task: Task, ended: Ended) -> tuple[StoreRun | None, str]:
        """Handle an executor's end; return the run to store, or why there is none."""
        key = (task.job, task.name)
        stopped = ended.by in (EndedBy.EXIT, EndedBy.SIGNAL) and ended.exit_status == _TERMINATED  # outside Penstock
        if not (ended.ok or stopped) or task.request is None or task.request.executor is None:
            self.drop(key)
            return None, ""
        application, settings, _ = key_of(job, task)
        report = self._reports.setdefault(key, _Report(task.node))
        report.identity = application, task.request.executor.run or job.job, settings
        self._waiting[key] = None
        stored, why = self._finish(key, report)
        if len(self._waiting) > _MOST_WAITING:
            self.drop(next(iter(self._waiting)))
        return stored, why

    def drop(self, key: Key) -> None:
        """Drop a report: the executor is to run again, or did not end well, so its use is not representative."""
        self._reports.pop(key, None)
        self._waiting.pop(key, None)

    def drop_unfinished(self, job: str) -> None:
        """Drop the reports of a finished job, except of executors that ended well, whose last part may still come."""
        for key in [key for key, report in self._reports.items() if key[0] == job and report.identity is None]:
            del self._reports[key]

    def gone(self, node: str) -> None:
        """Drop the reports of a lost node."""
        for key in [key for key, report in self._reports.items() if report.node == node]:
            self.drop(key)

    def _finish(self, key: Key, report: _Report) -> tuple[StoreRun | None, str]:
        if report.identity is None or not report.complete:
            return None, ""
        application, run, settings = report.identity
        self.drop(key)
        if report.missing or not report.slots:
            return None, report.missing or "it ended before its first slot did"
        if not any(report.mean):
            return None, "none of its slots was measured"
        return StoreRun(application, run, report.slot_s, report.run(settings)), ""
