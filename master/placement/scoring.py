"""Ursa's StageScore (§4.2.2, Algorithm 1): the worker that each task of a stage would go to, and the score of that."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np

from master.placement.candidates import Candidates
from master.placement.workers import Floats, Ints, Need, NeedsTable, State, Workers

#: "Initialize stage_bonus to a large number": F is at most 4, so nothing that is not whole reaches it.
STAGE_BONUS = 1e9
#: So many values of F are looked at together: what a processor's caches hold.
_TOGETHER = 1 << 19
#: A task whose best worker had grown worse so often is looked for with F of all that did.
_MISSES = 6


@dataclass(slots=True, eq=False)
class Stage:
    """The tasks of a stage that are to be placed."""

    job: str
    stage: str
    needs: list[Need]


@dataclass(slots=True)
class Plan:
    """What StageScore returns: score/|plan| + stage_bonus, and (index of the need, worker, F).

    The tasks before ``tried`` were looked at; those of them that are not in the plan find no worker in this round.
    ``most`` is what the score can be at most, now or later in the round. ``before`` and ``after`` are the workers of
    the plan, one for each task, before and after it takes its place. ``candidates`` are for the next time.
    """

    score: float
    whole: bool
    chosen: list[tuple[int, int, float]]
    tried: int
    most: float = np.inf
    candidates: Candidates | None = None
    before: list[State] = field(default_factory=list)
    after: list[State] = field(default_factory=list)

    @property
    def workers(self) -> set[int]:
        """Where its tasks go."""
        return {worker for _, worker, _ in self.chosen}


class Alike:
    """The needs of a stage, where those in a row that are the same count once: mostly all of a stage's tasks are.

    ``table`` has a row for each such group, ``counts`` are their sizes; group g ends before the need ``ends[g]``.
    """

    __slots__ = ("counts", "ends", "table")

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
        self.counts = np.diff(self.ends, prepend=0)
        self.table = NeedsTable(firsts)


def stage_score(
    stage: Stage,
    workers: Workers,
    alike: Alike | None = None,
    bonus: float = STAGE_BONUS,
    start: int = 0,
    limit: int = 0,
    room: int = 0,
) -> Plan:
    """The function StageScore of Algorithm 1, of the tasks from ``start`` on; ``workers`` is left as it was.

    With a ``limit`` the plan ends with so many tasks. At most ``room`` values of F are kept for the next scoring.
    """
    alike = alike or Alike(stage.needs)
    table = alike.table
    together = max(4, _TOGETHER // max(1, len(workers)))
    at_once = min(together, limit) if limit else together
    filling = _Filling(stage, workers, alike, start, limit)
    most, candidates = np.inf, None
    group = bisect_right(alike.ends, start)
    while group < len(alike.ends) and filling.wanting:
        part, first = table.part(group, group + at_once), group
        group += part.rows
        at_once = min(together, 8 * at_once)  # the first found nobody: the next hardly will
        fit = workers.fitness(part, lent=True)
        if part is table and bonus:
            most, candidates = _bound(fit, alike, bonus), Candidates.of(fit, len(workers.changes), room)
        filling.fill(_Sight(part, fit, workers), first)
    return filling.plan(bonus, most, candidates)


def score_among(stage: Stage, workers: Workers, alike: Alike, bonus: float, among: Candidates) -> Plan | None:
    """Return what :func:`stage_score` would, looking at the candidates only; None where others may be better."""
    fit = among.fit(alike.table, workers)
    if not among.hold(fit):
        return None
    filling = _Filling(stage, workers, alike, 0, 0)
    most = _bound(fit, alike, bonus)
    found = filling.fill(_Sight(alike.table, fit, workers, among.workers), 0, among.least.tolist())
    among.spoil([state[0] for state in filling.taken])
    if found:
        return filling.plan(bonus, most, among)
    workers.swap(filling.taken)
    return None


class _Sight:
    """F of tasks (``part``, m) on workers (c; ``ids`` where they are not all), while tasks take their places.

    F of a task is brought up to date only on the worker that seems to be the best: as no F grows, what is older is a
    bound, and a worker that is the best by its present F is so by that of all (Minoux 1978, lazy greedy).
    """

    def __init__(self, part: NeedsTable, fit: Floats, workers: Workers, ids: Ints | None = None) -> None:
        """``fit`` (m × c) is F at present. It is changed."""
        self.rows = part.rows
        self._part, self._fit, self._workers, self._ids = part, fit, workers, ids
        self._taken: set[int] = set()

    def best(self, row: int, need: Need) -> tuple[int, int, float]:
        """Return the column and index of the worker that is the best for a task, and F; −∞ where there is none."""
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
        """A task takes its place on the worker of this column."""
        self._taken.add(column)

    def _look_again(self, row: int) -> None:
        """Bring F up to date for the tasks from this one on."""
        columns = np.fromiter(self._taken, np.intp, len(self._taken))
        ids = columns if self._ids is None else self._ids[columns]
        self._fit[row:, columns] = self._workers.fitness(self._part.part(row, self.rows), ids)
        self._taken.clear()


class _Filling:
    """Tasks of a stage take their places, one after the other; ``taken`` undoes it."""

    def __init__(self, stage: Stage, workers: Workers, alike: Alike, start: int, limit: int) -> None:
        self._stage, self._workers, self._ends = stage, workers, alike.ends
        self._count = len(stage.needs)
        self._wanted = limit or self._count + 1
        self._tried = start
        self._chosen: list[tuple[int, int, float]] = []
        self.taken: list[State] = []

    @property
    def wanting(self) -> bool:
        """Whether the plan is to have more tasks."""
        return len(self._chosen) < self._wanted

    def fill(self, sight: _Sight, first: int, least: list[float] | None = None) -> bool:
        """Place the tasks that ``sight`` has, whose first group is ``first``; False as soon as a worker that it has not
        may be better: F on those is at most ``least`` of the row."""
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
        """What came of it; the workers are as they were before."""
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
    """What the score of a stage can be at most while D does not grow, from the largest F of each of its tasks."""
    largest = np.repeat(fit.max(axis=1, initial=-np.inf), alike.counts)
    if largest.min() == -np.inf:
        return float(largest.max())  # never whole
    return float(largest.mean()) + bonus
