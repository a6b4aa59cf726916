"""Ursa's Algorithm 1, TaskPlacement (§4.2.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from master.ordering import Key, Ranking
from master.placement.candidates import Candidates
from master.placement.scoring import STAGE_BONUS, Alike, Plan, Stage, are_few, score_among, stage_score
from master.placement.workers import COLUMN_NAMES, Floats, Need, NeedsTable, Workers
from penstock.model.units import counted

#: Tolerance for sums in another order at the scale of the bonus.
_ROUNDING = 1e-5
#: Number of values of F kept for later scorings of the stages, 32 MiB.
_KEPT = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A task and its worker, with the rule and the numbers behind the choice."""

    stage: Stage
    need: Need
    worker: int
    why: str


@dataclass(frozen=True, slots=True, eq=False)
class Account:
    """The basis of a placement: the key and score of the stage, and the task's F on every worker at that moment (n)."""

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
    until: Key = (),
    account: Callable[[Account], None] | None = None,
) -> list[Placement]:
    """Run Algorithm 1: place the stage with the largest key, repeatedly. Consumes ``workers`` and the ranking.

    Ties go to the earlier stage. Where the ranking does not place stages whole, the next ``chunk`` tasks represent a
    stage. Stages with a key below ``until`` are not placed.

    A stage is scored only when a bound on its score could make it the next one, and again only when a worker of its
    plan has changed. Both are exact: within a round neither D nor F grows, so a worker that lost against the plan's
    worker loses again, and a task without a worker stays without one. ``account`` is called for each decision.
    """
    placements: list[Placement] = []
    if not len(workers):
        return placements
    whole = ranking.whole_stages
    bonus = STAGE_BONUS if whole else 0.0
    limit, room = 0 if whole else chunk, _KEPT // len(stages) if len(stages) > 1 else 0
    alone = len(stages) == 1
    left = {i: _Open(stage, workers, bonus, limit, room, alone=alone) for i, stage in enumerate(stages) if stage.needs}
    line = _Line()
    for index, each in left.items():
        line.enter(index, each, ranking)
    while left:
        best = line.first(left)
        chosen = left[best]
        if chosen.key < until:
            break
        if chosen.plan is None:
            if chosen.score(workers):
                line.enter(best, chosen, ranking)
            else:
                del left[best]
            continue
        plan = chosen.plan
        placed, all_move = _carry_out(chosen, plan, workers, ranking, account)
        placements += placed
        chosen.start, chosen.plan = plan.tried, None
        if chosen.start < len(chosen.stage.needs):
            line.enter(best, chosen, ranking)
        else:
            del left[best]
        changed = chosen.workers
        for index, other in left.items():
            void = other.plan is not None and not changed.isdisjoint(other.workers)
            if void:
                other.plan = None
            if void or (not whole and (all_move or other.stage.job == chosen.stage.job)):
                line.enter(index, other, ranking)
    return placements


class _Line:
    """The stages by their keys, the largest first; of equal keys, the earlier stage."""

    def __init__(self) -> None:
        self._heap: list[tuple[Key, int]] = []

    def enter(self, index: int, stage: _Open, ranking: Ranking) -> None:
        """Enter a stage with its new key."""
        # without a plan, a bound on its score
        score = stage.plan.score if stage.plan is not None else stage.most + _ROUNDING
        stage.key = ranking.key(stage.stage.job, score)
        stage.behind = tuple(-each for each in stage.key)
        heappush(self._heap, (stage.behind, index))

    def first(self, left: dict[int, _Open]) -> int:
        """Return the first remaining stage; outdated entries are dropped when they come up."""
        while True:
            behind, index = self._heap[0]
            stage = left.get(index)
            if stage is not None and stage.behind == behind:
                return index
            heappop(self._heap)


class _Open:
    """A stage during the round: its remaining tasks, and its plan while that is valid."""

    __slots__ = (
        "_among", "_bonus", "_limit", "_room", "alike", "behind", "key", "most", "plan", "stage", "start", "workers",
    )  # fmt: skip

    def __init__(self, stage: Stage, workers: Workers, bonus: float, limit: int, room: int, *, alone: bool) -> None:
        """``alone``: it is the only stage, the next one with any bound on its score."""
        self.stage = stage
        self.alike = Alike(stage.needs)
        self.start = 0
        self.plan: Plan | None = None
        self.workers: set[int] = set()
        self.key: Key = ()
        self.behind: Key = ()
        self._bonus, self._limit, self._room = bonus, limit, room
        self._among: Candidates | None = None
        self.most = np.inf
        if not alone:
            most = np.repeat(workers.most(self.alike.table), self.alike.counts)
            self.most = float(most.max() if limit else max(most.mean() + bonus, most.max()))

    def score(self, workers: Workers) -> bool:
        """Make the plan; return False if no task finds a worker."""
        if not are_few(self.stage.needs, workers) and workers.none_for(self.alike.table):
            return False
        plan = score_among(self.stage, workers, self.alike, self._bonus, self._among) if self._among else None
        if plan is None:
            plan = stage_score(self.stage, workers, self.alike, self._bonus, self.start, self._limit, self._room)
        self._among = plan.candidates
        self.plan, self.workers = plan, {worker for _, worker, _ in plan.chosen}
        self.most = min(self.most, plan.most)
        return bool(plan.chosen)


def _carry_out(
    opened: _Open, plan: Plan, workers: Workers, ranking: Ranking, account: Callable[[Account], None] | None
) -> tuple[list[Placement], bool]:
    """Carry out a plan; return the placements, and whether charging them may have moved other jobs."""
    stage = opened.stage
    rank = f"stage score {plan.score % STAGE_BONUS:.3g}{' + bonus' if plan.whole else ''}"
    ordered = f"{rank}, {ranking.why(stage.job)}, {len(plan.chosen)} of {counted(len(stage.needs), 'task')}"
    placed: list[Placement] = []
    moved = False
    for (index, worker, fit), before, after in zip(plan.chosen, plan.before, plan.after, strict=True):
        need = stage.needs[index]
        terms = terms_of(before[-1], workers.increase(need, worker))
        at_that_moment = workers.fitness(NeedsTable([need]))[0] if account is not None else None
        workers.settle(after)
        moved |= ranking.charge(stage.job, need.holds)
        placed.append(Placement(stage, need, worker, f"ursa: F = {fit:.3g} (D×Inc: {terms}); {ordered}"))
        if account is not None and at_that_moment is not None:
            account(Account(placed[-1], opened.key, plan.score % STAGE_BONUS, plan.whole, at_that_moment))
    return placed, moved


def terms_of(d: tuple[float, ...], inc: list[float]) -> str:
    """Return the terms of F as text, from D and Inc."""
    return " + ".join(
        [
            f"{COLUMN_NAMES[i]} {d[i]:.2g}×{min(d[i], asked):.2g}"
            for i, asked in enumerate(inc)
            if asked > 0
        ]
    ) or "nothing asked"  # fmt: skip
