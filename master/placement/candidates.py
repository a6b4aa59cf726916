"""The workers that can be the best for the tasks of a stage, and F on them from one scoring of the stage to the next.

Within a round no F grows (Ursa §4.2.2: D only falls). So a worker that was not among the best when all were looked at
is better than none of them whose F is still above what its own was then; and where tasks were placed meanwhile only F
on the workers that they went to has changed.
"""

from __future__ import annotations

import numpy as np

from master.placement.workers import Floats, Ints, NeedsTable, Workers

#: With fewer workers it takes no longer to look at all of them.
_FROM_WORKERS = 2048
#: The best of each of so many groups of workers are compared, and so many of those are candidates for a task.
_GROUPS, _BEST = 400, 300


class Candidates:
    """``workers`` (c), ascending: the candidates. ``least`` (m): by task, what F on no other worker exceeds, then or
    later in the round."""

    __slots__ = ("_fit", "_outdated", "_seen", "least", "workers")

    def __init__(self, workers: Ints, least: Floats, fit: Floats | None, seen: int) -> None:
        self.workers = workers
        self.least = least
        self._fit = fit
        self._outdated: list[int] = []
        self._seen = seen

    @classmethod
    def of(cls, fit: Floats, seen: int, room: int) -> Candidates | None:
        """Choose by F of every task on every worker (m × n), after ``seen`` changes of the workers; None where that is
        of no use. F is kept if it has at most ``room`` values."""
        tasks, count = fit.shape
        chosen, least = np.arange(count), np.full(tasks, -np.inf)
        few = False
        if count >= _FROM_WORKERS:
            best = fit[:, : count - count % _GROUPS].reshape(tasks, -1, _GROUPS).max(axis=1)
            at = np.partition(best, _GROUPS - _BEST, axis=1)[:, _GROUPS - _BEST]
            found = np.flatnonzero((fit >= np.maximum(at, -1.0)[:, None]).any(axis=0))  # F is from 0 on, or −∞
            few = len(found) < count // 2
            chosen, least = (found, at) if few else (chosen, least)
        if tasks * len(chosen) <= room:
            # Row after row in memory, as it is read; fit[:, chosen] would be column after column.
            return cls(chosen, least, fit.take(chosen, axis=1), seen)
        return cls(chosen, least, None, seen) if few else None

    def fit(self, table: NeedsTable, workers: Workers) -> Floats:
        """F at present of the tasks, those of :meth:`of`, on the candidates (m × c). The array is lent: its columns
        may be changed if they are named to :meth:`spoil` before the next call."""
        if self._fit is None:
            return workers.fitness(table, self.workers, lent=True)
        columns = self._columns({*self._outdated, *workers.changes[self._seen :]})
        self._fit[:, columns] = workers.fitness(table, self.workers[columns])
        self._outdated.clear()
        self._seen = len(workers.changes)
        return self._fit

    def spoil(self, workers: list[int]) -> None:
        """Remember that F on these workers is not what it would be now."""
        self._outdated += workers

    def hold(self, fit: Floats) -> bool:
        """Return whether the best worker of each task is one of them, by the present F (m × c)."""
        return bool(((fit.max(axis=1, initial=-np.inf) > self.least) | (self.least == -np.inf)).all())

    def _columns(self, workers: set[int]) -> Ints:
        """Where those of these workers that are candidates stand."""
        wanted = np.fromiter(workers, np.intp, len(workers))
        at = np.searchsorted(self.workers, wanted)
        at[at == len(self.workers)] = 0
        columns: Ints = at[self.workers[at] == wanted]
        return columns
