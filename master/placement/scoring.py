"""Ursa's StageScore (§4.2.2, Algorithm 1): the worker for each task of a stage, and the resulting score."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np

from master.placement.candidates import Candidates
from master.placement.workers import Floats, Ints, Need, NeedsTable, State, Workers

#: "Initialize stage_bonus to a large number": F is at most 4, so no incomplete stage reaches it.
STAGE_BONUS = 1e9
#: Number of values of F computed together: they fit into a processor's caches.
_TOGETHER = 1 << 19
#: Up to this many values of F are computed one by one.
_FEW = 16
#: After this many outdated best workers for a task, F is recomputed on all outdated workers.
_MISSES = 6


@dataclass(slots=True, eq=False)
class Stage:
    """The tasks of a stage that are to be placed."""

    job: str
    stage: str
    needs: list[Need]


@dataclass(slots=True)
class Plan:
    """The result of StageScore: score/|plan| + stage_bonus, and (index of the need, worker, F).

    The tasks before ``tried`` were examined; those missing in the plan find no worker in this round. ``most`` bounds
    the score for the rest of the round. ``before`` and ``after`` are the plan's workers, one per task, before and after
    the task takes its place. ``candidates`` are for the next scoring.
    """

    score: float
    whole: bool
    chosen: list[tuple[int, int, float]]
    tried: int
    most: float = np.inf
    candidates: Candidates | None = None
    before: list[State] = field(default_factory=list)
    after: list[State] = field(default_factory=list)


class Alike:
    """The needs of a stage, grouped into runs of equal ones: mostly all tasks of a stage are equal.

    ``table`` has a row for each group, ``counts`` are the groups' sizes; group g ends before the need ``ends[g]``.
    """

    __slots__ = ("_firsts", "_table", "ends")

    _firsts: list[Need]
    _table: NeedsTable | None

    def __init__(self, needs: list[Need]) -> None:
        firsts: list[Need] = []
        self.ends: list[int] = []
        last: Need | None = None
        for index, need in enumerate(needs):
            if last is None or need.amounts != last.amounts or not need.is_like(last):
                firsts.append(need)
                self.ends.append(index)
                last = need
        del self.ends[:1]
        self.ends.append(len(needs))
        self._firsts, self._table = firsts, None

    @property
    def counts(self) -> Ints:
        """Return the groups' sizes."""
        return np.diff(self.ends, prepend=0)

    @property
    def table(self) -> NeedsTable:
        """Return the table, which few tasks on few workers do not need."""
        if self._table is None:
            self._table = NeedsTable(self._firsts)
        return self._table


def stage_score(
    stage: Stage,
    workers: Workers,
    alike: Alike | None = None,
    bonus: float = STAGE_BONUS,
    start: int = 0,
    limit: int = 0,
    room: int = 0,
) -> Plan:
    """Run StageScore of Algorithm 1 for the tasks from ``start`` on; ``workers`` is unchanged afterwards.

    With a ``limit`` the plan ends after that many tasks. At most ``room`` values of F are kept for the next scoring.
    """
    alike = alike or Alike(stage.needs)
    if are_few(stage.needs, workers):
        filling, group = _Fill(stage, workers, alike, start, limit), bisect_right(alike.ends, start)
        filling.fill(_Glance(len(alike.ends) - group, workers), group)
        return filling.plan(bonus, np.inf, None)
    table = alike.table
    together = max(4, _TOGETHER // max(1, len(workers)))
    at_once = min(together, limit) if limit else together
    filling = _Fill(stage, workers, alike, start, limit)
    most, candidates = np.inf, None
    group = bisect_right(alike.ends, start)
    while group < len(alike.ends) and filling.wanting:
        part, first = table.part(group, group + at_once), group
        group += part.rows
        at_once = min(together, 8 * at_once)  # the first group found no worker: the next ones hardly will
        fit = workers.fitness(part, lent=True)
        if part is table and bonus:
            most, candidates = _bound(fit, alike, bonus), Candidates.of(fit, len(workers.changes), room)
        filling.fill(_Sight(part, fit, workers), first)
    return filling.plan(bonus, most, candidates)


def score_among(stage: Stage, workers: Workers, alike: Alike, bonus: float, among: Candidates) -> Plan | None:
    """Return the result of :func:`stage_score` from the candidates alone; None where other workers may be better."""
    fit = among.fit(alike.table, workers)
    if not among.hold(fit):
        return None
    filling = _Fill(stage, workers, alike, 0, 0)
    most = _bound(fit, alike, bonus)
    found = filling.fill(_Sight(alike.table, fit, workers, among.workers), 0, among.least.tolist())
    among.spoil([state[0] for state in filling.taken])
    if found:
        return filling.plan(bonus, most, among)
    workers.swap(filling.taken)
    return None


def are_few(needs: list[Need], workers: Workers) -> bool:
    """Return whether to compute F one by one: arrays cost more than so few values."""
    return len(needs) * len(workers) <= _FEW


class _Glance:
    """As :class:`_Sight`, for few tasks on few workers."""

    def __init__(self, rows: int, workers: Workers) -> None:
        self.rows = rows
        self._workers = workers

    def best(self, row: int, need: Need) -> tuple[int, int, float]:
        """Return the index of the best worker for a task twice, and F."""
        fits = [self._workers.fit_on(worker, need) for worker in range(len(self._workers))]
        fit = max(fits)
        worker = fits.index(fit)
        return worker, worker, fit

    def take(self, column: int) -> None:
        """Do nothing: F is always computed anew."""


class _Sight:
    """F of tasks (``part``, m) on workers (c; ``ids`` for a selection of them), while tasks take their places.

    F of a task is updated only on the worker that seems best: as no F grows, an older value is an upper bound, and a
    worker that is best by its present F is best overall (Minoux 1978, lazy greedy).
    """

    def __init__(self, part: NeedsTable, fit: Floats, workers: Workers, ids: Ints | None = None) -> None:
        """``fit`` (m × c) is the present F. It is modified."""
        self.rows = part.rows
        self._part, self._fit, self._workers, self._ids = part, fit, workers, ids
        self._taken: set[int] = set()

    def best(self, row: int, need: Need) -> tuple[int, int, float]:
        """Return the column and index of the best worker for a task, and F; −∞ where there is none."""
        values, misses = self._fit[row], 0
        while True:
            column = int(values.argmax())
            fit = float(values[column])
            worker = column if self._ids is None else int(self._ids[column])
            if column not in self._taken or fit == -np.inf:
                return column, worker, fit
            now = self._workers.fit_on(worker, need)
            if now == fit:
                return column, worker, fit
            values[column] = now
            misses += 1
            if misses == _MISSES:
                self._look_again(row)

    def take(self, column: int) -> None:
        """Record that a task took a place on this column's worker."""
        self._taken.add(column)

    def _look_again(self, row: int) -> None:
        """Recompute F on the outdated workers for this task and later ones."""
        columns = np.fromiter(self._taken, np.intp, len(self._taken))
        ids = columns if self._ids is None else self._ids[columns]
        self._fit[row:, columns] = self._workers.fitness(self._part.part(row, self.rows), ids)
        self._taken.clear()


class _Fill:
    """Places tasks of a stage one after the other; ``taken`` allows undoing it."""

    def __init__(self, stage: Stage, workers: Workers, alike: Alike, start: int, limit: int) -> None:
        self._stage, self._workers, self._ends = stage, workers, alike.ends
        self._count = len(stage.needs)
        self._wanted = limit or self._count + 1
        self._tried = start
        self._chosen: list[tuple[int, int, float]] = []
        self.taken: list[State] = []

    @property
    def wanting(self) -> bool:
        """Return whether the plan needs more tasks."""
        return len(self._chosen) < self._wanted

    def fill(self, sight: _Sight | _Glance, first: int, least: list[float] | None = None) -> bool:
        """Place the tasks of ``sight``, whose first group is ``first``. Return False as soon as a worker outside
        ``sight`` may be better: F on those is at most ``least`` of the row.
        """
        needs, ends = self._stage.needs, self._ends
        for row in range(sight.rows):
            if not self.wanting:
                break
            self._tried = max(self._tried, ends[first + row - 1] if first + row else 0)
            elsewhere = -np.inf if least is None else least[row]
            while self._tried < ends[first + row] and self.wanting:
                need = needs[self._tried]
                column, worker, fit = sight.best(row, need)
                if fit <= elsewhere:
                    if fit < elsewhere or fit > -np.inf:
                        return False
                    break
                self._chosen.append((self._tried, worker, fit))
                self.taken.append(self._workers.take(worker, need))
                sight.take(column)
                self._tried += 1
        return True

    def plan(self, bonus: float, most: float, candidates: Candidates | None) -> Plan:
        """Return the resulting plan, and restore the workers."""
        chosen = self._chosen
        tried = self._count if self.wanting else self._tried
        after = self._workers.swap(self.taken)
        if not chosen:
            return Plan(0.0, False, chosen, tried)
        score = sum(best for _, _, best in chosen)
        whole = len(chosen) == self._count
        score = score / len(chosen) + (bonus if whole else 0.0)
        return Plan(score, whole, chosen, tried, most, candidates, self.taken, after)


def _bound(fit: Floats, alike: Alike, bonus: float) -> float:
    """Return a bound on a stage's score while D does not grow, from the largest F of each of its tasks."""
    largest = np.repeat(fit.max(axis=1, initial=-np.inf), alike.counts)
    if largest.min() == -np.inf:
        return float(largest.max())  # never whole
    return float(largest.mean()) + bonus
