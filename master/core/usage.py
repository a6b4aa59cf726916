"""What executors used, put together from their nodes' reports (Elasecutor §III.A): one run each, or nothing.

A report's last part and the word of how the executor ended come in either order; a run is kept when both have come,
the executor ended well, and no slot is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from master.core.forecasts import key_of
from master.core.instructions import StoreRun
from master.core.records import Job, Key, Task
from master.placement.availability import amounts
from master.prediction.runs import LEAST_PART, Run, Settings
from penstock.model import Ended, EndedBy
from penstock.wire.master_api import ExecutorUse, SlotAmounts

#: Slots of an executor that are put together at most; agents double a slot's length before.
MOST_SLOTS = 10_000
#: What ends a program that has no end of its own, as the workers of engines end executors: 128 + SIGTERM.
_TERMINATED = 143


@dataclass(frozen=True, slots=True)
class Identity:
    """Of which application and run an executor was, and with which settings."""

    application: str
    run: str
    settings: Settings


@dataclass(slots=True)
class _Report:
    """Of one executor on one node. ``missing`` says which slots never came; what comes from slot 0 on mends it."""

    node: str
    slot_s: float = 0.0
    slots: int = 0
    mean: list[SlotAmounts | None] = field(default_factory=list)
    peak: list[SlotAmounts | None] = field(default_factory=list)
    stages: list[int] = field(default_factory=list)
    last_part: float = 1.0
    missing: str = "nothing was reported"
    complete: bool = False
    identity: Identity | None = None  # once it has ended well
    stuck: bool = False

    def add(self, use: ExecutorUse) -> None:
        """The next part, or all from the beginning again."""
        if use.first == 0:
            self.slot_s, self.slots, self.mean, self.peak, self.missing = use.slot_s, 0, [], [], ""
        if not self.missing and (use.first != self.slots or use.slot_s != self.slot_s):
            self.missing = f"slots {self.slots} to {use.first} were not reported"
        if not self.missing and len(use.mean) != len(use.peak):
            self.missing = f"{len(use.mean)} means and {len(use.peak)} peaks from slot {use.first} on"
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
        """All of it. The ends of stages that do not fit it are left out."""
        mean = amounts(self.mean)
        peak = np.maximum(amounts(self.peak), mean)
        fits = bool(self.stages) and self.stages[-1] == self.slots and _rise([0, *self.stages])
        return Run(settings, mean, peak, tuple(self.stages) if fits else (), max(LEAST_PART, self.last_part))


class UsageReports:
    """By executor. Of those that ended well and wait for their last part so many are kept, the latest."""

    def __init__(self, most_waiting: int = 256) -> None:
        self._most_waiting = most_waiting
        self._reports: dict[Key, _Report] = {}
        self._waiting: dict[Key, None] = {}

    def __len__(self) -> int:
        return len(self._reports)

    def reported(self, node: str, use: ExecutorUse, *, held: bool) -> tuple[StoreRun | None, str]:
        """A part of a report; what is to be kept because of it, or why nothing is. ``held``: that node has it now."""
        key = (use.job, use.task)
        known = self._reports.get(key)
        if known is None or known.node != node:
            if not held:
                return None, ""  # it was requeued, or cancelled, and its node did not know yet
            known = self._reports[key] = _Report(node)
        known.add(use)
        return self._finish(key, known)

    def gets_stuck(self, node: str, use: ExecutorUse) -> bool:
        """Whether it is stuck there and was not when it was last reported on."""
        known = self._reports.get((use.job, use.task))
        if known is None or known.node != node:
            return False
        before, known.stuck = known.stuck, use.stuck
        return use.stuck and not before

    def ended(self, job: Job, task: Task, ended: Ended) -> tuple[StoreRun | None, str]:
        """How an executor ended; what is to be kept because of it, or why nothing is."""
        key = (task.job, task.name)
        if not _well(ended) or task.request is None or task.request.executor is None:
            self.forget(key)
            return None, ""
        application, settings, _ = key_of(job, task)
        report = self._reports.setdefault(key, _Report(task.node))
        report.identity = Identity(application, task.request.executor.run or job.job, settings)
        self._waiting[key] = None
        stored, why = self._finish(key, report)
        if len(self._waiting) > self._most_waiting:
            self.forget(next(iter(self._waiting)))
        return stored, why

    def forget(self, key: Key) -> None:
        """It is to run again, or did not end well: what it used is nobody's profile."""
        self._reports.pop(key, None)
        self._waiting.pop(key, None)

    def forget_unfinished(self, job: str) -> None:
        """A job is over; of those that ended well the last part may still come."""
        for key in [key for key, report in self._reports.items() if key[0] == job and report.identity is None]:
            del self._reports[key]

    def gone(self, node: str) -> None:
        """A node is lost, and what it had still to say."""
        for key in [key for key, report in self._reports.items() if report.node == node]:
            self.forget(key)

    def _finish(self, key: Key, report: _Report) -> tuple[StoreRun | None, str]:
        who = report.identity
        if who is None or not report.complete:
            return None, ""
        self.forget(key)
        if report.missing or not report.slots:
            return None, report.missing or "it ended before its first slot did"
        if not any(report.mean):
            return None, "none of its slots was measured"
        return StoreRun(who.application, who.run, report.slot_s, report.run(who.settings)), ""


def _rise(ends: list[int]) -> bool:
    return all(a < b for a, b in pairwise(ends))


def _well(ended: Ended) -> bool:
    """Whether it did what it was there for: it said so, or somebody other than Penstock told it to stop."""
    return ended.ok or (ended.by in (EndedBy.EXIT, EndedBy.SIGNAL) and ended.exit_status == _TERMINATED)
