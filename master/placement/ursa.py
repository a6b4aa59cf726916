"""Ursa's Algorithm 1, TaskPlacement (§4.2.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from master.ordering import StageKey
from master.placement.workers import COLUMN_NAMES, MEMORY, Floats, Need, Workers

#: "Initialize stage_bonus to a large number": F is at most 4, so nothing that is not whole reaches it.
STAGE_BONUS = 1e9
_NOWHERE = -np.inf


@dataclass(slots=True, eq=False)
class Stage:
    """The tasks of a stage that are to be placed, and how long ago its job was submitted (T of EJF)."""

    job: str
    stage: str
    needs: list[Need]
    elapsed_s: float


@dataclass(slots=True)
class Plan:
    """What StageScore returns: (need, worker, F(need, worker)) and score/|plan| + stage_bonus."""

    score: float
    whole: bool
    chosen: list[tuple[Need, int, float]]


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A task and its worker, with the rule and the numbers that led to it."""

    stage: Stage
    need: Need
    worker: int
    why: str


def place(workers: Workers, stages: list[Stage], key: StageKey, weight_per_s: float) -> list[Placement]:
    """Algorithm 1: again and again the stage with the largest score is placed. Consumes ``workers``.

    Ties go to the stage that stands first. A stage is scored again only when one of the workers in its plan has
    changed: D never grows within a round, so every worker that lost against the plan's would lose again, and a task
    that found no worker finds none.
    """
    placements: list[Placement] = []
    plans: dict[int, Plan] = {}
    left = dict(enumerate(stages))
    while left:
        for index, stage in left.items():
            if index not in plans:
                plans[index] = stage_score(stage, workers)
        left = {index: stage for index, stage in left.items() if plans[index].chosen}
        if not left:
            break
        best = max(left, key=lambda index: (*key(plans[index].score, left[index].elapsed_s, weight_per_s), -index))
        stage, plan = left.pop(best), plans.pop(best)
        placements += _carry_out(stage, plan, workers, weight_per_s)
        changed = {worker for _, worker, _ in plan.chosen}
        plans = {
            index: kept
            for index, kept in plans.items()
            if index in left and not any(worker in changed for _, worker, _ in kept.chosen)
        }
    return placements


def stage_score(stage: Stage, workers: Workers) -> Plan:
    """The function StageScore of Algorithm 1; ``workers`` is left as it was."""
    trial = workers.copy()
    chosen: list[tuple[Need, int, float]] = []
    score = 0.0
    too_much: dict[object, float] = {}  # signature → the least memory that found no worker, so that more cannot either
    for need in stage.needs:
        signature = need.signature()
        if need.allowed is None and need.amounts[MEMORY] >= too_much.get(signature, np.inf):
            continue
        fit = fitness(need, trial)
        worker = int(fit.argmax()) if len(fit) else 0
        if not len(fit) or fit[worker] == _NOWHERE:
            if need.allowed is None:
                too_much[signature] = float(need.amounts[MEMORY])
            continue
        score += float(fit[worker])
        chosen.append((need, worker, float(fit[worker])))
        trial.take(worker, need)
    whole = len(chosen) == len(stage.needs)
    if not chosen:
        return Plan(0.0, False, chosen)
    return Plan(score / len(chosen) + (STAGE_BONUS if whole else 0.0), whole, chosen)


def fitness(need: Need, workers: Workers) -> Floats:
    """F(t, w) for every worker (Eq. 1), −∞ where the task must not go.

    "We do not assign t to w if D_r(w) = 0 and Inc_r(t, w) > 0 for any r"; where Inc_r > D_r it counts as D_r.
    """
    d = workers.d
    inc = workers.increase(need)
    barred = ((d <= 0.0) & (inc > 0.0)).any(axis=1)
    barred |= workers.memory_free < need.amounts[MEMORY]
    barred |= workers.cores_free < need.cores - 1e-9  # sums of fractions of cores
    if need.allowed is not None:
        barred |= ~need.allowed
    fit: Floats = (d * np.minimum(inc, d)).sum(axis=1)
    fit[barred] = _NOWHERE
    return fit


def _carry_out(stage: Stage, plan: Plan, workers: Workers, weight_per_s: float) -> Iterator[Placement]:
    rank = f"stage score {plan.score % STAGE_BONUS:.3g}{' + bonus' if plan.whole else ''}"
    ordered = f"{rank}, W·T {weight_per_s * stage.elapsed_s:.3g}, {len(plan.chosen)} of {len(stage.needs)} tasks"
    for need, worker, fit in plan.chosen:
        d, inc = workers.d[worker].tolist(), workers.increase_on(worker, need).tolist()
        terms = " + ".join(
            f"{name} {have:.2g}×{min(asked, have):.2g}"
            for name, have, asked in zip(COLUMN_NAMES, d, inc, strict=True)
            if asked > 0
        )
        workers.take(worker, need)
        yield Placement(stage, need, worker, f"ursa: F = {fit:.3g} (D×Inc: {terms or 'nothing asked'}); {ordered}")


def why_not(need: Need, workers: Workers) -> str:
    """What keeps a task from every worker now, for the status page: how many workers lack what."""
    if not workers.names:
        return "no node is connected"
    inc = workers.increase(need)
    lacks = {f"{name} to spare": (workers.d[:, i] <= 0) & (inc[:, i] > 0) for i, name in enumerate(COLUMN_NAMES[:3])}
    lacks["memory"] = workers.memory_free < need.amounts[MEMORY]
    lacks["unpromised cores"] = workers.cores_free < need.cores - 1e-9
    if need.allowed is not None:
        lacks["permission for it (its nodes, or an earlier refusal)"] = ~need.allowed
    said = [f"{int(mask.sum())} lack {what}" for what, mask in lacks.items() if mask.any()]
    return f"of {len(workers.names)} nodes {', '.join(said) or 'none could take it in this order'}"
