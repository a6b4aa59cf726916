"""The promises of each ordering, over the policy objects alone and over Algorithm 1."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from master.ordering import NAMES, ClusterView, JobView, Multilevel, OrderingSettings, Ranking, StageView, ordering_of
from master.placement import Need, Stage, Workers, place, place_singly, scoring, ursa
from master.placement.scoring import STAGE_BONUS, stage_score
from master.placement.workers import NeedsTable
from penstock.model import ResourceKind
from penstock.model.resource_vector import SlotVector

# ---------------------------------------------------------------- dominant resource fairness

demands = st.lists(st.tuples(*[st.integers(1, 20)] * 2), min_size=2, max_size=6)


def filled(asks: list[tuple[int, int]], capacity: int) -> list[int]:
    """Progressive filling (Ghodsi et al., Algorithm 1): whoever goes first gets a task, until his does not fit."""
    cluster = ClusterView(capacity=SlotVector(capacity, 0.0, 0.0, capacity), containers=float(capacity))
    jobs = [JobView(str(index), sequence=index) for index in range(len(asks))]
    ranking = ordering_of(OrderingSettings("drf")).rank(jobs, cluster)
    given_to = [0] * len(asks)
    left = [capacity, capacity]
    while True:
        first = max(range(len(asks)), key=lambda index: ranking.key(str(index), 0.0))
        if any(ask > have for ask, have in zip(asks[first], left, strict=True)):
            return given_to
        left = [have - ask for ask, have in zip(asks[first], left, strict=True)]
        given_to[first] += 1
        ranking.charge(str(first), (asks[first][0], 0.0, 0.0, asks[first][1]))


@given(demands, st.integers(100, 400))
def test_drf_gives_each_user_an_nth_part_but_for_a_task_each(asks: list[tuple[int, int]], capacity: int) -> None:
    """Sharing incentive: no user would be better off with an nth of the cluster alone."""
    given_to = filled(asks, capacity)
    steps = [max(ask) / capacity for ask in asks]
    shares = [count * step for count, step in zip(given_to, steps, strict=True)]
    assert min(shares) >= (1 - sum(steps)) / len(asks) - 1e-9


@given(demands, st.integers(100, 400))
def test_drf_leaves_no_user_envious_but_for_a_task(asks: list[tuple[int, int]], capacity: int) -> None:
    given_to = filled(asks, capacity)
    for own, ask in zip(given_to, asks, strict=True):
        for other, theirs in zip(given_to, asks, strict=True):
            bundle = [(other - 1) * amount for amount in theirs]
            could_run = min(have / want for have, want in zip(bundle, ask, strict=True))
            assert could_run <= own + 1e-9


# ---------------------------------------------------------------- no starvation


def served(ranking: Ranking, wants: dict[str, int], containers: int) -> dict[str, int]:
    """Return the users served in one step: one container after the other to the first in order that still wants
    some.
    """
    given_to = dict.fromkeys(wants, 0)
    for _ in range(containers):
        able = [job for job in wants if given_to[job] < wants[job]]
        if not able:
            break
        first = max(able, key=lambda job: ranking.key(job, 0.0))
        ranking.charge(first, (1.0, 0.0, 0.0, 0.0))
        given_to[first] += 1
    return given_to


@given(st.sampled_from(["las_mq", "fair"]), st.lists(st.integers(0, 3), min_size=10, max_size=30), st.integers(8, 20))
def test_a_large_job_goes_on_however_many_others_come(ordering: str, arrivals: list[int], containers: int) -> None:
    """New jobs come at every step and want all there is; one was there before. Nothing is left unused either."""
    levels = Multilevel(queues=3, first_threshold=10.0, weights=(4, 2, 1))
    policy = ordering_of(OrderingSettings(ordering, las_mq=levels))
    cluster = ClusterView(containers=float(containers))
    received: dict[str, float] = {"large": 5000.0}
    for step, count in enumerate(arrivals):
        received |= {f"{step}-{index}": 0.0 for index in range(count)}
        young = [job for job, service in received.items() if service < 40.0 or job == "large"][-4:]
        received = {job: received[job] for job in {*young, "large"}}
        wants = dict.fromkeys(sorted(received), containers)
        jobs = [
            JobView(job, sequence=index, service=received[job], needs=99.0, wants=float(containers))
            for index, job in enumerate(wants)
        ]
        given_to = served(policy.rank(jobs, cluster), wants, containers)
        assert sum(given_to.values()) == containers, "work conserving"
        assert given_to["large"] >= 1, "in every step"
        received = {job: received[job] + given_to[job] for job in received}


@given(st.lists(st.integers(1, 5), min_size=2, max_size=4), st.integers(1, 3))
def test_turns_at_the_hosts_come_to_the_weights(weights: list[int], slots: int) -> None:
    """Agents know an order and no shares; over many rounds each user with a constant demand has received a fair
    part.
    """
    policy = ordering_of(OrderingSettings("fair"))
    received = {str(index): 0.0 for index in range(len(weights))}
    looks = 40 * sum(weights)
    for _ in range(looks):
        jobs = [
            JobView(job, sequence=int(job), weight=float(weights[int(job)]), service=service)
            for job, service in received.items()
        ]
        received[policy.rank(jobs, ClusterView()).order()[0]] += slots
    for job, service in received.items():
        part = weights[int(job)] / sum(weights)
        assert abs(service / (looks * slots) - part) < 0.05


# ---------------------------------------------------------------- Algorithm 1 under every ordering


def a_round(seed: int, ordering: str) -> tuple[Workers, list[Stage], Ranking]:
    """Workers, stages and a ranking."""
    rng = Random(seed)
    count = rng.randint(1, 12)
    free = np.array([rng.uniform(0, 100) for _ in range(count)])
    workers = Workers(
        1.0,
        rates=np.array([[rng.choice([50.0, 100.0]) for _ in range(3)] for _ in range(count)]),
        pending=np.array([[rng.choice([0.0, rng.uniform(0, 80)]) for _ in range(3)] for _ in range(count)]),
        slots=np.full((count, 3), 2.0),
        idle_cores=np.array([float(rng.randint(0, 3)) for _ in range(count)]),
        memory_free=free,
        memory_capacity=np.full(count, 100.0),
        cores_free=np.array([rng.uniform(0, 4) for _ in range(count)]),
    )
    stages, jobs = [], []
    for job in range(rng.randint(1, 5)):
        for stage in range(rng.randint(1, 3)):
            needs = [
                Need(
                    str(job),
                    f"{stage}-{index}",
                    tuple(rng.choice([0.0, rng.uniform(1, 40)]) for _ in range(4)),  # type: ignore[arg-type]
                    cores=rng.choice([0.0, 0.0, 1.5]),
                    holds=SlotVector(1.0, memory_bytes=rng.uniform(0, 40)),
                )
                for index in range(rng.randint(1, 9))
            ]
            alike = [(need, copy) for need in needs for copy in range(rng.choice([1] * 8 + [3]))]
            needs = [replace(need, task=f"{need.task}-{copy}") for need, copy in alike]
            stages.append(Stage(str(job), str(stage), needs))
        view = JobView(
            str(job), tenant=rng.choice(["x", "x/y", "z"]), submitted_at=rng.uniform(0, 9), sequence=job,
            service=rng.choice([0.0, 50.0, 500.0]), needs=float(rng.randint(1, 9)), wants=float(rng.randint(1, 9)),
            remaining=(rng.uniform(0, 9), rng.uniform(0, 9), 1.0), stages=(StageView("s", 4, 2, 20.0),),
        )  # fmt: skip
        jobs.append(view)
    cluster = ClusterView(10.0, SlotVector(4.0 * count, 2.0 * count, 2.0 * count, 100.0 * count), 4.0 * count)
    return workers, stages, ordering_of(OrderingSettings(ordering)).rank(jobs, cluster)


def patiently(workers: Workers, stages: list[Stage], ranking: Ranking, chunk: int) -> list[tuple[str, str, int]]:
    """Algorithm 1 without any economy: everything is scored again before every choice."""
    whole = ranking.whole_stages
    left = {index: stage.needs for index, stage in enumerate(stages)}
    placed: list[tuple[str, str, int]] = []
    while left:
        scored = {}
        for index, needs in left.items():
            stage = Stage(stages[index].job, stages[index].stage, needs)
            plan = stage_score(stage, workers, bonus=STAGE_BONUS if whole else 0.0, limit=0 if whole else chunk)
            if plan.chosen:
                scored[index] = plan
        if not scored:
            break
        best = max(scored, key=lambda index: (ranking.key(stages[index].job, scored[index].score), -index))
        plan, needs = scored[best], left.pop(best)
        for place_in_needs, worker, _ in plan.chosen:
            workers.take(worker, needs[place_in_needs])
            ranking.charge(stages[best].job, needs[place_in_needs].holds)
            placed.append((needs[place_in_needs].job, needs[place_in_needs].task, worker))
        if needs[plan.tried :]:
            left[best] = needs[plan.tried :]
        left = dict(sorted(left.items()))
    return placed


@given(st.integers(0, 10**9), st.sampled_from(NAMES), st.integers(1, 5))
@settings(max_examples=40)
def test_economy_changes_no_decision(seed: int, ordering: str, chunk: int) -> None:
    """Lazy scoring with a cache of true scores gives the same decisions as scoring everything."""
    placed = [(p.need.job, p.need.task, p.worker) for p in place(*a_round(seed, ordering), chunk=chunk)]
    assert placed == patiently(*a_round(seed, ordering), chunk)


@given(st.integers(0, 10**9), st.sampled_from(NAMES), st.sampled_from([0, 1 << 22]), st.sampled_from([1, 6]))
@settings(max_examples=40)
def test_cached_scores_change_no_decision(seed: int, ordering: str, kept: int, misses: int) -> None:
    """Neither how much of F is kept for the next scoring, nor when F is brought up to date in a scoring."""
    expected = [(p.need.task, p.worker, p.why) for p in place(*a_round(seed, ordering))]
    with patch.object(ursa, "_KEPT", kept), patch.object(scoring, "_MISSES", misses):
        assert [(p.need.task, p.worker, p.why) for p in place(*a_round(seed, ordering))] == expected


@given(st.integers(0, 10**9))
@settings(max_examples=40)
def test_f_of_one_task_on_one_worker_is_that_of_all_to_the_last_bit(seed: int) -> None:
    rng = Random(seed)
    workers, stages, _ = a_round(seed, "ejf")
    needs = [need for stage in stages for need in stage.needs]
    some = np.array([rng.random() < 0.5 for _ in range(len(workers))])
    needs += [replace(needs[0], allowed=some), replace(needs[0], unknown_size=rng.choice(list(ResourceKind)))]
    for _ in range(20):
        fit = workers.fitness(NeedsTable(needs))
        single = [[workers.fit_on(worker, need) for worker in range(len(workers))] for need in needs]
        assert fit.tolist() == single
        row, worker = rng.randrange(len(needs)), rng.randrange(len(workers))
        if fit[row, worker] > -np.inf:
            workers.take(worker, needs[row])


@given(st.integers(0, 10**9), st.sampled_from(NAMES), st.booleans())
@settings(max_examples=40)
def test_nothing_is_overcommitted_and_nothing_that_fits_is_left(seed: int, ordering: str, stage_aware: bool) -> None:
    before, _, _ = a_round(seed, ordering)
    workers, stages, ranking = a_round(seed, ordering)
    placed_by = place if stage_aware else place_singly
    placements = placed_by(workers, stages, ranking)
    memory, cores = before.memory_free.copy(), before.cores_free.copy()
    for placement in placements:
        memory[placement.worker] -= placement.need.amounts[3]
        cores[placement.worker] -= placement.need.cores
    assert (memory >= 0).all()
    assert (cores >= -1e-6).all()
    placed = {(p.need.job, p.need.task) for p in placements}
    assert len(placed) == len(placements)
    left = [need for stage in stages for need in stage.needs if (need.job, need.task) not in placed]
    if left:
        assert not np.isfinite(workers.fitness(NeedsTable(left))).any(), "work conserving"
    again = [(p.need.task, p.worker, p.why) for p in placed_by(*a_round(seed, ordering))]
    assert again == [(p.need.task, p.worker, p.why) for p in placements], "the same picture, the same decisions"


@given(st.integers(0, 10**9), st.sampled_from(NAMES))
@settings(max_examples=40)
def test_without_stage_awareness_the_best_task_goes_first(seed: int, ordering: str) -> None:
    """Ursa §5.2: "pick one task (instead of a whole stage) that has the highest score each time"; all of them looked at
    again each time."""
    workers, stages, ranking = a_round(seed, ordering)
    left = [need for stage in stages for need in stage.needs]
    expected: list[tuple[str, str, int]] = []
    while left:
        fits = workers.fitness(NeedsTable(left))
        scores = fits.max(axis=1)
        if not np.isfinite(scores).any():
            break
        able = [row for row in range(len(left)) if np.isfinite(scores[row])]
        row = max(able, key=lambda row: ranking.key(left[row].job, float(scores[row])))
        need, worker = left.pop(row), int(fits[row].argmax())
        workers.take(worker, need)
        ranking.charge(need.job, need.holds)
        expected.append((need.job, need.task, worker))
    placed = [(p.need.job, p.need.task, p.worker) for p in place_singly(*a_round(seed, ordering))]
    assert placed == expected
