"""The workers that can be the best for a stage's tasks, with F on them, kept between scorings of the stage.

Within a round F never grows (Ursa §4.2.2: D only falls). So a worker outside the candidates stays worse than any worker
whose present F exceeds the excluded worker's F at selection. Placements change F only on the workers they go to.
"""

from __future__ import annotations

import numpy as np

from master.placement.workers import Floats, Ints, NeedsTable, Workers

#: With fewer workers, examining all of them takes no longer.
_FROM_WORKERS = 2048
#: The best of each of this many groups of workers are compared; this many of those are candidates for a task.
_GROUPS, _BEST = 400, 300


class Candidates:
    """``workers`` (c), ascending: the candidates. ``least`` (m): for each task, an upper bound of F on all other
    workers, valid for the rest of the round.
    """

    __slots__ = ("_fit", "_outdated", "_seen", "least", "workers")

    def __init__(self, workers: Ints, least: Floats, fit: Floats | None, seen: int) -> None:
        self.workers = workers
        self.least = least
        self._fit = fit
        self._outdated: list[int] = []
        self._seen = seen

    @classmethod
    def of(cls, fit: Floats, seen: int, room: int) -> Candidates | None:
        """Choose candidates by F of every task on every worker (m × n), after ``seen`` changes of the workers; return
        None where candidates save nothing. F is kept if it has at most ``room`` values.
        """
        tasks, count = fit.shape
        chosen, least = np.arange(count), np.full(tasks, -np.inf)
        few = False
        if count >= _FROM_WORKERS:
            best = fit[:, : count - count % _GROUPS].reshape(tasks, -1, _GROUPS).max(axis=1)
            at = np.partition(best, _GROUPS - _BEST, axis=1)[:, _GROUPS - _BEST]
            found = np.flatnonzero((fit >= np.maximum(at, -1.0)[:, None]).any(axis=0))  # F is at least 0, or −∞
            few = len(found) < count // 2
            chosen, least = (found, at) if few else (chosen, least)
        if tasks * len(chosen) <= room:
            # Contiguous rows, as it is read by rows; fit[:, chosen] would store columns.
            return cls(chosen, least, fit.take(chosen, axis=1), seen)
        return cls(chosen, least, None, seen) if few else None

    def fit(self, table: NeedsTable, workers: Workers) -> Floats:
        """Return the present F of the tasks given to :meth:`of` on the candidates (m × c). The array is lent: the
        caller may change columns if it names them to :meth:`spoil` before the next call.
        """
        if self._fit is None:
            return workers.fitness(table, self.workers, lent=True)
        columns = self._columns({*self._outdated, *workers.changes[self._seen :]})
        self._fit[:, columns] = workers.fitness(table, self.workers[columns])
        self._outdated.clear()
        self._seen = len(workers.changes)
        return self._fit

    def spoil(self, workers: list[int]) -> None:
        """Mark F on these workers as outdated."""
        self._outdated += workers

    def hold(self, fit: Floats) -> bool:
        """Return whether each task's best worker is a candidate, by the present F (m × c)."""
        return bool(((fit.max(axis=1, initial=-np.inf) > self.least) | (self.least == -np.inf)).all())

    def _columns(self, workers: set[int]) -> Ints:
        """Return the columns of those workers that are candidates."""
        wanted = np.fromiter(workers, np.intp, len(workers))
        at = np.searchsorted(self.workers, wanted)
        at[at == len(self.workers)] = 0
        columns: Ints = at[self.workers[at] == wanted]
        return columns
