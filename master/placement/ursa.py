"""Ursa's Algorithm 1, TaskPlacement (§4.2.2)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from master.ordering import Key, Ranking
from master.placement.candidates import Candidates
from master.placement.workers import COLUMN_NAMES, MEMORY, Floats, Ints, Need, NeedsTable, Undo, Workers

#: "Initialize stage_bonus to a large number": F is at most 4, so nothing that is not whole reaches it.
STAGE_BONUS = 1e9
#: Sums in another order, and at the scale of the bonus, differ by less.
_ROUNDING = 1e-5
#: So many values of F are looked at together: what a processor's caches hold.
_TOGETHER = 1 << 19


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
    before: list[Undo] = field(default_factory=list)
    after: list[Undo] = field(default_factory=list)

    @property
    def workers(self) -> set[int]:
        """Where its tasks go."""
        return {worker for _, worker, _ in self.chosen}


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A task and its worker, with the rule and the numbers that led to it."""

    stage: Stage
    need: Need
    worker: int
    why: str


@dataclass(frozen=True, slots=True, eq=False)
class Account:
    """What a task was placed by: the key and score of its stage, and its F on every worker at that moment (n)."""

    placement: Placement
    key: Key
    score: float
    whole: bool
    fit: Floats


def place(
    workers: Workers,
    stages: list[Stage],
    ranking: Ranking,
    *,
    chunk: int = 4,
    account: Callable[[Account], None] | None = None,
) -> list[Placement]:
    """Algorithm 1: again and again the stage with the largest key is placed. Consumes ``workers`` and the ranking.

    Ties go to the stage that stands first. Where the ranking does not place stages whole, the next ``chunk`` tasks of a
    stage stand for it.

    A stage is scored only when a bound on its score lets it be the next one, and again only when a worker of its plan
    has changed. Both are exact: D never grows within a round, so that no F does, a worker that lost against the plan's
    loses again, and a task that found no worker finds none. ``account`` is told of each decision.
    """
    placements: list[Placement] = []
    if not len(workers):
        return placements
    whole = ranking.whole_stages
    bonus = STAGE_BONUS if whole else 0.0
    left = {i: _Open(stage, workers, bonus, 0 if whole else chunk) for i, stage in enumerate(stages) if stage.needs}
    line = _Line()
    for index, each in left.items():
        line.enter(index, each, ranking)
    while left:
        best = line.first(left)
        chosen = left[best]
        if chosen.plan is None:
            if chosen.score(workers):
                line.enter(best, chosen, ranking)
            else:
                del left[best]
            continue
        plan = chosen.plan
        placed, all_move = _carry_out(chosen, plan, workers, ranking, account)
        placements += placed
        if chosen.go_on(plan):
            line.enter(best, chosen, ranking)
        else:
            del left[best]
        changed = plan.workers
        for index, other in left.items():
            void = other.plan is not None and not changed.isdisjoint(other.workers)
            if void:
                other.plan = None
            if void or (not whole and (all_move or other.stage.job == chosen.stage.job)):
                line.enter(index, other, ranking)
    return placements


class _Line:
    """The stages by their keys, the largest first; of equal ones that which stands first."""

    def __init__(self) -> None:
        self._heap: list[tuple[Key, int]] = []

    def enter(self, index: int, stage: _Open, ranking: Ranking) -> None:
        """A stage has another key now."""
        stage.rank(ranking)
        stage.behind = tuple(-each for each in stage.key)
        heappush(self._heap, (stage.behind, index))

    def first(self, left: dict[int, _Open]) -> int:
        """Of those that are left; entries from before a key changed are dropped as they come up."""
        while True:
            behind, index = self._heap[0]
            stage = left.get(index)
            if stage is not None and stage.behind == behind:
                return index
            heappop(self._heap)


class _Open:
    """A stage while the round lasts: the tasks still to be placed, the plan for them while it is true."""

    __slots__ = ("_among", "_bonus", "_limit", "_most", "alike", "behind", "key", "plan", "stage", "start", "workers")

    def __init__(self, stage: Stage, workers: Workers, bonus: float, limit: int) -> None:
        self.stage = stage
        self.alike = Alike(stage.needs)
        self.start = 0
        self.plan: Plan | None = None
        self.workers: set[int] = set()
        self.key: Key = ()
        self.behind: Key = ()
        most = np.repeat(workers.most(self.alike.table), self.alike.counts)
        self._bonus, self._limit = bonus, limit
        self._among: Candidates | None = None
        self._most = float(most.max() if limit else max(most.mean() + bonus, most.max()))

    def rank(self, ranking: Ranking) -> None:
        """Its key, or a bound on it while there is no plan."""
        score = self.plan.score if self.plan is not None else self._most + _ROUNDING
        self.key = ranking.key(self.stage.job, score)

    def score(self, workers: Workers) -> bool:
        """Make the plan; False if no task finds a worker."""
        if workers.none_for(self.alike.table):
            return False
        plan = score_among(self.stage, workers, self.alike, self._bonus, self._among) if self._among else None
        if plan is None:
            plan = stage_score(self.stage, workers, self.alike, self._bonus, self.start, self._limit)
        self._among = plan.candidates
        self.plan, self.workers = plan, plan.workers
        self._most = min(self._most, plan.most)
        return bool(plan.chosen)

    def go_on(self, plan: Plan) -> bool:
        """Its plan was carried out; False if nothing is left to be tried."""
        self.start, self.plan = plan.tried, None
        return self.start < len(self.stage.needs)


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
) -> Plan:
    """The function StageScore of Algorithm 1, of the tasks from ``start`` on; ``workers`` is left as it was.

    With a ``limit`` the plan ends with so many tasks.
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
            most, candidates = _bound(fit, alike, bonus), Candidates.of(fit)
        filling.fill(part, first, fit)
    return filling.plan(bonus, most, candidates)


def score_among(stage: Stage, workers: Workers, alike: Alike, bonus: float, among: Candidates) -> Plan | None:
    """Return what :func:`stage_score` would, looking at the candidates only; None where others may be better."""
    fit = workers.fitness(alike.table, among.workers, lent=True)
    if not among.hold(fit):
        return None
    filling = _Filling(stage, workers, alike, 0, 0)
    most = _bound(fit, alike, bonus)
    if filling.fill(alike.table, 0, fit, among):
        return filling.plan(bonus, most, among)
    workers.swap(filling.taken)
    return None


class _Filling:
    """Tasks of a stage take their places, one after the other; ``taken`` undoes it."""

    def __init__(self, stage: Stage, workers: Workers, alike: Alike, start: int, limit: int) -> None:
        self._stage, self._workers, self._ends = stage, workers, alike.ends
        self._count = len(stage.needs)
        self._wanted = limit or self._count + 1
        self._tried = start
        self._chosen: list[tuple[int, int, float]] = []
        self.taken: list[Undo] = []

    @property
    def wanting(self) -> bool:
        """Whether the plan is to have more tasks."""
        return len(self._chosen) < self._wanted

    def fill(self, part: NeedsTable, first: int, fit: Floats, among: Candidates | None = None) -> bool:
        """Place the tasks of ``part``, whose first group is ``first``, by F (changed in place) on all workers, or
        ``among`` them; False as soon as another worker may be better than all candidates."""
        workers, ends = self._workers, self._ends
        least = among.least.tolist() if among is not None else [-np.inf] * part.rows
        open_to = np.count_nonzero(fit > -np.inf, axis=1)  # by how many workers; who finds none now finds none later
        row = _next(open_to, 0)
        while row < part.rows and self.wanting:
            self._tried = max(self._tried, ends[first + row - 1] if first + row else 0)
            while open_to[row] and self._tried < ends[first + row] and self.wanting:
                column = int(fit[row].argmax())
                best = float(fit[row, column])
                if best <= least[row]:
                    return False
                worker = column if among is None else int(among.workers[column])
                self._chosen.append((self._tried, worker, best))
                self.taken.append(workers.take(worker, self._stage.needs[self._tried]))
                now, before = workers.fitness_on(worker, part, row), fit[row:, column]
                open_to[row:] -= (before > -np.inf) & (now == -np.inf)
                before[:] = now
                self._tried += 1
            row += 1
            if row < part.rows and not open_to[row]:
                row = _next(open_to, row)
        return among is None or not ((open_to == 0) & (among.least > -np.inf)).any()

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


def _next(open_to: Ints, start: int) -> int:
    """The first row from ``start`` on that finds a worker; behind the last where there is none."""
    rest = np.flatnonzero(open_to[start:])
    return start + int(rest[0]) if len(rest) else len(open_to)


def _bound(fit: Floats, alike: Alike, bonus: float) -> float:
    """What the score of a stage can be at most while D does not grow, from the largest F of each of its tasks."""
    largest = np.repeat(fit.max(axis=1, initial=-np.inf), alike.counts)
    if largest.min() == -np.inf:
        return float(largest.max())  # never whole
    return float(largest.mean()) + bonus


def _carry_out(
    opened: _Open, plan: Plan, workers: Workers, ranking: Ranking, account: Callable[[Account], None] | None
) -> tuple[list[Placement], bool]:
    """The placements, and whether charging them may have moved other jobs."""
    stage = opened.stage
    rank = f"stage score {plan.score % STAGE_BONUS:.3g}{' + bonus' if plan.whole else ''}"
    ordered = f"{rank}, {ranking.why(stage.job)}, {len(plan.chosen)} of {len(stage.needs)} tasks"
    placed: list[Placement] = []
    moved = False
    for (index, worker, fit), before, after in zip(plan.chosen, plan.before, plan.after, strict=True):
        need = stage.needs[index]
        terms = terms_of(before[-1], workers.increase(need, worker))
        at_that_moment = workers.fitness(NeedsTable([need]))[0] if account is not None else None
        workers.restore(after)
        moved |= ranking.charge(stage.job, need.holds)
        placed.append(Placement(stage, need, worker, f"ursa: F = {fit:.3g} (D×Inc: {terms}); {ordered}"))
        if account is not None and at_that_moment is not None:
            account(Account(placed[-1], opened.key, plan.score % STAGE_BONUS, plan.whole, at_that_moment))
    return placed, moved


def terms_of(d: tuple[float, ...], inc: list[float]) -> str:
    """The terms of F in words, from D and Inc."""
    return " + ".join(
        [
            f"{COLUMN_NAMES[i]} {d[i]:.2g}×{min(d[i], asked):.2g}"
            for i, asked in enumerate(inc)
            if asked > 0
        ]
    ) or "nothing asked"  # fmt: skip


def lacks(need: Need, workers: Workers) -> dict[str, int]:
    """What keeps a task from how many workers now."""
    asks = NeedsTable([need]).asks[0]
    masks = {f"{name} to spare": (workers.d[i] <= 0) & asks[i] for i, name in enumerate(COLUMN_NAMES[:3])}
    masks["memory"] = workers.memory_free < need.amounts[MEMORY]
    masks["unpromised cores"] = workers.cores_free < need.cores - 1e-9
    if need.allowed is not None:
        masks["permission for it (its nodes, or an earlier refusal)"] = ~need.allowed
    return {what: int(mask.sum()) for what, mask in masks.items() if mask.any()}
