"""Placement by peaks keeps its promises: nothing beyond a capacity, nothing left that fits, the best each time."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from master.ordering import NAMES, ClusterView, JobView, OrderingSettings, Ranking, ordering_of
from master.placement import Need, PeakPlacement, Peaks, Stage, Unreserved
from master.placement.peaks import COUNTS
from master.placement.workers import Floats

PEAKS = Peaks((1.0, 4.0, 10.0), 2.0)
#: A cluster's capacity, the free part of it, and the stages to be placed.
Round = tuple[Floats, Floats, list[Stage], Ranking]


def a_round(seed: int, ordering: str) -> Round:
    rng = random.Random(seed)
    count = rng.randrange(1, 5)
    capacity = np.array([[rng.choice((2.0, 4.0)), 4.0, 10.0, rng.choice((50.0, 100.0))] for _ in range(count)])
    free = capacity * np.array([[rng.choice((0.0, 0.5, 1.0)) for _ in range(4)] for _ in range(count)])
    jobs = [f"j{n}" for n in range(rng.randrange(1, 4))]
    stages = []
    for job in jobs:
        for stage in range(rng.randrange(1, 3)):
            needs = []
            for number in range(rng.randrange(1, 6)):
                sizes = [rng.choice((0.0, 3.0, 20.0)) for _ in range(3)]
                allowed = np.array([rng.random() < 0.7 for _ in range(count)]) if rng.random() < 0.2 else None
                name = f"{job}-{stage}-{number}"
                memory = rng.choice((0.0, 10.0, 30.0))
                needs.append(Need(job, name, (sizes[0], sizes[1], sizes[2], memory), allowed=allowed))
            stages.append(Stage(job, f"s{stage}", needs))
    views = [JobView(job, submitted_at=-rng.random() * 5, sequence=n) for n, job in enumerate(jobs)]
    return capacity, free, stages, ordering_of(OrderingSettings(ordering)).rank(views, ClusterView())


def demand(need: Need) -> Floats:
    cpu, disk, network, memory = need.amounts
    return np.array([float(cpu > 0), *PEAKS.of(cpu, disk, network), memory])


def check(name: str, of: Round, placed: list[tuple[str, int]]) -> None:
    """Each decision is the best of all that were possible then, but for rounding; at the end none is."""
    capacity, free, stages, ranking = of
    counts = list(COUNTS[name])
    share = free / capacity
    waiting = [list(stage.needs) for stage in stages]
    for task, worker in [*placed, ("", -1)]:
        possible: dict[str, tuple[tuple[float, ...], Floats, list[Need]]] = {}
        for needs in waiting:  # represented by the next task of each stage that fits somewhere
            while needs:
                part, there = (demand(needs[0]) / capacity)[:, counts], share[:, counts]
                fits = (part <= there + 1e-9).all(axis=1)
                if needs[0].allowed is not None:
                    fits &= needs[0].allowed
                if fits.any():
                    score = there.sum(axis=1) if name == "capacity" else (part * there).sum(axis=1)
                    score[~fits] = -np.inf
                    possible[needs[0].task] = ranking.key(needs[0].job, float(score.max())), score, needs
                    break
                del needs[0]
        if not task:
            assert not possible, "work conserving"
            return
        key, score, needs = possible[task]
        assert all(key >= other or np.allclose(key, other, atol=1e-9) for other, _, _ in possible.values())
        assert score[worker] >= score.max() - 1e-9
        need = needs.pop(0)
        share[worker] -= demand(need) / capacity[worker]
        ranking.charge(need.job, need.holds)


@given(st.integers(0, 10**9), st.sampled_from(NAMES), st.sampled_from(list(COUNTS)))
@settings(max_examples=200)
def test_peaks_are_kept_to_and_the_best_goes_first(seed: int, ordering: str, name: str) -> None:
    capacity, free, stages, ranking = a_round(seed, ordering)
    policy = PeakPlacement(name, Unreserved(capacity, free), PEAKS)
    placements = policy.place(stages, ranking)
    placed = [(p.need.task, p.worker) for p in placements]
    assert len({task for task, _ in placed}) == len(placed)
    check(name, a_round(seed, ordering), placed)
    left = free.copy()
    for placement in placements:
        left[placement.worker] -= demand(placement.need)
    touched = sorted({worker for _, worker in placed})
    assert (left[np.ix_(touched, list(COUNTS[name]))] >= -1e-6).all(), "nothing beyond the free resources"
