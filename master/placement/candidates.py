"""The few workers that can be the best for the tasks of a stage, so that it is scored again without a look at all.

Within a round no F grows (Ursa §4.2.2: D only falls). So a worker that was not among the best when all were looked at
is better than none of them whose F is still above what its own was then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from master.placement.workers import Floats, Ints

#: With fewer workers it takes no longer to look at all of them.
_FROM_WORKERS = 2048
#: The best of each of so many groups of workers are compared, and so many of those are candidates for a task.
_GROUPS, _BEST = 400, 300


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """``workers`` (c), ascending; ``least`` (m): by task, F of no other worker exceeds it, then or later."""

    workers: Ints
    least: Floats

    @classmethod
    def of(cls, fit: Floats) -> Candidates | None:
        """Choose by F of every task on every worker (m × n); None where that is of no use."""
        tasks, count = fit.shape
        if count < _FROM_WORKERS:
            return None
        best = fit[:, : count - count % _GROUPS].reshape(tasks, -1, _GROUPS).max(axis=1)
        least = np.partition(best, _GROUPS - _BEST, axis=1)[:, _GROUPS - _BEST]
        chosen = np.flatnonzero((fit >= np.maximum(least, -1.0)[:, None]).any(axis=0))  # F is from 0 on, or −∞
        return cls(chosen, least) if len(chosen) < count // 2 else None

    def hold(self, fit: Floats) -> bool:
        """Return whether the best worker of each task is one of them, by the present F (m × c)."""
        return bool(((fit.max(axis=1, initial=-np.inf) > self.least) | (self.least == -np.inf)).all())
