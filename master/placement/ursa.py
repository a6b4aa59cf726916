"""Ursa's Algorithm 1, TaskPlacement (§4.2.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from master.ordering import Key, Ranking
from master.placement.workers import COLUMN_NAMES, MEMORY, Floats, Need, NeedsTable, Undo, Workers

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
    the plan, one for each task, before and after it takes its place.
    """

    score: float
    whole: bool
    chosen: list[tuple[int, int, float]]
    tried: int
    most: float = np.inf
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
    stage_aware: bool = True,
    account: Callable[[Account], None] | None = None,
) -> list[Placement]:
    """Algorithm 1: again and again the stage with the largest key is placed. Consumes ``workers`` and the ranking.

    Ties go to the stage that stands first. Where the ranking does not place stages whole, the next ``chunk`` tasks of a
    stage stand for it. Without stage awareness "one task (instead of a whole stage) that has the highest score" is
    picked each time (§5.2).

    A stage is scored only when a bound on its score lets it be the next one, and again only when a worker of its plan
    has changed. Both are exact: D never grows within a round, so that no F does, a worker that lost against the plan's
    loses again, and a task that found no worker finds none. ``account`` is told of each decision.
    """
    placements: list[Placement] = []
    if not len(workers):
        return placements
    if not stage_aware:
        stages = [Stage(stage.job, stage.stage, [need]) for stage in stages for need in stage.needs]
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

    __slots__ = ("_bonus", "_limit", "_most", "behind", "key", "plan", "stage", "start", "table", "workers")

    def __init__(self, stage: Stage, workers: Workers, bonus: float, limit: int) -> None:
        self.stage = stage
        self.table = NeedsTable(stage.needs)
        self.start = 0
        self.plan: Plan | None = None
        self.workers: set[int] = set()
        self.key: Key = ()
        self.behind: Key = ()
        most = workers.most(self.table)
        self._bonus, self._limit = bonus, limit
        self._most = float(most.max() if limit else max(most.mean() + bonus, most.max()))

    def rank(self, ranking: Ranking) -> None:
        """Its key, or a bound on it while there is no plan."""
        score = self.plan.score if self.plan is not None else self._most + _ROUNDING
        self.key = ranking.key(self.stage.job, score)

    def score(self, workers: Workers) -> bool:
        """Make the plan; False if no task finds a worker."""
        plan = self.plan = stage_score(self.stage, workers, self.table, self._bonus, self.start, self._limit)
        self.workers = plan.workers
        self._most = min(self._most, plan.most)
        return bool(plan.chosen)

    def go_on(self, plan: Plan) -> bool:
        """Its plan was carried out; False if nothing is left to be tried."""
        self.start, self.plan = plan.tried, None
        return self.start < len(self.stage.needs)


def stage_score(
    stage: Stage,
    workers: Workers,
    table: NeedsTable | None = None,
    bonus: float = STAGE_BONUS,
    start: int = 0,
    limit: int = 0,
) -> Plan:
    """The function StageScore of Algorithm 1, of the tasks from ``start`` on; ``workers`` is left as it was.

    With a ``limit`` the plan ends with so many tasks.
    """
    table = table or NeedsTable(stage.needs)
    count = len(stage.needs)
    together = max(4, _TOGETHER // max(1, len(workers)))
    together = min(together, limit) if limit else together
    chosen: list[tuple[int, int, float]] = []
    taken: list[Undo] = []
    score = 0.0
    most = np.inf
    tried = start
    too_much: dict[object, float] = {}  # signature → the least memory that found no worker, so that more cannot either
    while tried < count and not (limit and len(chosen) >= limit):
        part = table.part(tried, tried + together)
        fit = workers.fitness(part)
        if part.rows == count and bonus:
            most = _bound(fit, bonus)
        for row in range(part.rows):
            if limit and len(chosen) >= limit:
                break
            index, tried = tried, tried + 1
            worker = _best(stage.needs[index], fit[row], too_much)
            if worker < 0:
                continue
            best = float(fit[row, worker])
            score += best
            chosen.append((index, worker, best))
            taken.append(workers.take(worker, stage.needs[index]))
            if row + 1 < part.rows:
                fit[row + 1 :, worker] = workers.fitness_on(worker, part, row + 1)
    after = workers.swap(taken)
    if not chosen:
        return Plan(0.0, False, chosen, tried)
    whole = len(chosen) == count
    return Plan(score / len(chosen) + (bonus if whole else 0.0), whole, chosen, tried, most, taken, after)


def _best(need: Need, fit: Floats, too_much: dict[object, float]) -> int:
    """The worker with the largest F; −1 where there is none."""
    signature = None
    if need.allowed is None and too_much:
        signature = need.signature()
        if need.amounts[MEMORY] >= too_much.get(signature, np.inf):
            return -1
    worker = int(fit.argmax())
    if fit[worker] != -np.inf:
        return worker
    if need.allowed is None:
        too_much[signature or need.signature()] = need.amounts[MEMORY]
    return -1


def _bound(fit: Floats, bonus: float) -> float:
    """What the score of a stage can be at most while D does not grow; ``fit`` is F of all its tasks."""
    most = fit.max(axis=1)
    if most.min() == -np.inf:
        return float(most.max())  # never whole
    return float(most.mean()) + bonus


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
        terms = _terms(before[-1], workers.increase(need, worker))
        at_that_moment = workers.fitness(NeedsTable([need]))[0] if account is not None else None
        workers.restore(after)
        moved |= ranking.charge(stage.job, need.holds)
        placed.append(Placement(stage, need, worker, f"ursa: F = {fit:.3g} (D×Inc: {terms}); {ordered}"))
        if account is not None and at_that_moment is not None:
            account(Account(placed[-1], opened.key, plan.score % STAGE_BONUS, plan.whole, at_that_moment))
    return placed, moved


def _terms(d: tuple[float, ...], inc: list[float]) -> str:
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


def why_not(need: Need, workers: Workers) -> str:
    """The same in words, for the status page."""
    if not len(workers):
        return "no node is connected"
    said = [f"{count} lack {what}" for what, count in lacks(need, workers).items()]
    return f"of {len(workers)} nodes {', '.join(said) or 'none could take it in this order'}"
