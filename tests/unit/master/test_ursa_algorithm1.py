"""Ursa's Algorithm 1: by hand, and against an independent, loop-based reading of the paper."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from master.ordering import ClusterView, JobView, OrderingSettings, Ranking, ordering_of
from master.placement import AlgorithmOne, Need, Stage, Workers, candidates, place, scoring, ursa, why_not
from master.placement.scoring import STAGE_BONUS, stage_score
from master.placement.workers import Floats, NeedsTable
from penstock.model import ResourceKind

EPT = 0.12


def cluster(*rows: tuple[tuple[float, ...], tuple[float, ...], float, float, float]) -> Workers:
    """Workers from (rates, pending, idle cores, free memory, memory)."""
    rates, pending, idle, free, capacity = zip(*rows, strict=True)
    return Workers(
        EPT,
        rates=np.array(rates, dtype=float),
        pending=np.array(pending, dtype=float),
        slots=np.full((len(rows), 3), 2.0),
        idle_cores=np.array(idle, dtype=float),
        memory_free=np.array(free, dtype=float),
        memory_capacity=np.array(capacity, dtype=float),
        cores_free=np.full(len(rows), 4.0),
    )


def need(task: str, *amounts: float, **more: object) -> Need:
    return Need("j", task, amounts, **more)  # type: ignore[arg-type]


def fitness(task: Need, workers: Workers) -> Floats:
    """F of one task on every worker."""
    fit: Floats = workers.fitness(NeedsTable([task]))[0]
    return fit


def stage(*needs: Need, job: str = "j") -> Stage:
    return Stage(job, "s", list(needs))


def ejf(weight: float = 1.0, name: str = "ejf", **elapsed_s: float) -> Ranking:
    """A ranking of jobs that were submitted so long ago; job j just now."""
    jobs = [JobView(job, submitted_at=-elapsed) for job, elapsed in {"j": 0.0, **elapsed_s}.items()]
    return ordering_of(OrderingSettings(name, ejf_weight=weight)).rank(jobs, ClusterView())


# ---------------------------------------------------------------- by hand


def test_f_is_the_sum_of_d_times_inc() -> None:
    w = cluster(((100, 200, 50), (0, 12, 3), 1, 80, 100))
    # D = 1, 0.5, 0.5, 0.8; Inc = 0.5, 0.25, 0.1, 0.2
    assert fitness(need("t", 6, 6, 0.6, 20), w)[0] == pytest.approx(1 * 0.5 + 0.5 * 0.25 + 0.5 * 0.1 + 0.8 * 0.2)


def test_a_plan_that_is_whole_gets_the_bonus_and_scores_are_means() -> None:
    w = cluster(((100, 100, 100), (0, 0, 0), 4, 100, 100))
    # disk: D = 1, Inc 0.25 → F = 0.25; then D = 0.75 → F = 0.1875
    whole = stage_score(stage(need("a", 0, 3, 0, 0), need("b", 0, 3, 0, 0)), w)
    assert whole.score == pytest.approx(STAGE_BONUS + (0.25 + 0.1875) / 2)
    # a takes all of the disk, b finds nothing: the mean is over the plan, without the bonus
    part = stage_score(stage(need("a", 0, 12, 0, 0), need("b", 0, 1, 0, 0)), w)
    assert part.score == pytest.approx(1.0)
    assert [(index, worker) for index, worker, _ in part.chosen] == [(0, 0)]
    assert w.d[1, 0] == 1.0, "scoring leaves the cluster as it was"


def test_ejf_adds_w_times_t() -> None:
    young = stage(need("a", 0, 12, 0, 0), job="young")  # F = 1
    old = stage(need("b", 0, 3, 0, 0), job="old")  # F = 0.25
    for weight, first in ((0.5, "young"), (1.0, "old")):  # 1 + 0.5 > 0.25 + 1; 1 + 1 < 0.25 + 2
        w = cluster(((100, 100, 100), (0, 0, 0), 4, 100, 100))
        assert place(w, [young, old], ejf(weight, young=1.0, old=2.0))[0].stage.job == first


def test_fifo_never_lets_a_younger_job_go_first() -> None:
    w = cluster(((100, 100, 100), (0, 0, 0), 4, 100, 100))
    old = stage(need("a", 0, 3, 0, 0), need("b", 0, 300, 0, 0), need("c", 0, 1, 0, 0), job="old")
    young = stage(need("d", 0, 12, 0, 0), job="young")
    placed = place(w, [young, old], ejf(name="fifo", young=1.0, old=2.0))
    assert [p.stage.job for p in placed] == ["old", "old"]


def test_load_is_balanced_over_equal_workers() -> None:
    w = cluster(*[((100, 100, 100), (0, 0, 0), 4, 100, 100)] * 4)
    placed = place(w, [stage(*[need(f"t{i}", 1, 2, 0, 10) for i in range(8)])], ejf())
    assert sorted(p.worker for p in placed) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_command_of_unknown_size_takes_its_slot_for_an_ept() -> None:
    w = cluster(((100, 100, 100), (0, 0, 0), 1, 100, 100))
    unknown = [need(f"t{i}", 0, 0, 0, 0, unknown_size=ResourceKind.DISK) for i in range(3)]
    assert w.increase(unknown[0], 0) == pytest.approx([0, 0.5, 0, 0])  # two slots
    assert len(place(w, [stage(*unknown)], ejf())) == 2


def test_the_choice_may_be_restricted() -> None:
    w = cluster(*[((100, 100, 100), (0, 0, 0), 4, 100, 100)] * 3)
    allowed = np.array([False, False, True])
    placed = place(w, [stage(need("t", 1, 0, 0, 0, allowed=allowed))], ejf())
    assert placed[0].worker == 2
    assert place(w, [stage(need("t", 1, 0, 0, 0, allowed=np.zeros(3, dtype=bool)))], ejf()) == []


def test_cores_of_a_command_must_be_free_to_promise() -> None:
    w = cluster(((100, 100, 100), (0, 0, 0), 4, 100, 100))
    commands = [need(f"t{i}", 1, 0, 0, 0, cores=1.5) for i in range(3)]  # four are free
    assert [p.need.task for p in place(w, [stage(*commands)], ejf())] == ["t0", "t1"]


def test_without_workers_nothing_is_placed() -> None:
    rows, columns = np.empty((0, 3)), np.empty(0)
    w = Workers(
        EPT, rates=rows, pending=rows, slots=rows, idle_cores=columns, memory_free=columns, memory_capacity=columns,
        cores_free=columns,
    )  # fmt: skip
    assert place(w, [stage(need("t", 1, 0, 0, 0))], ejf()) == []
    assert why_not(need("t", 1, 0, 0, 0), AlgorithmOne(w, chunk=4, stage_aware=True)) == "no node is connected"


def test_every_placement_has_the_numbers_that_led_to_it() -> None:
    w = cluster(((100, 100, 100), (0, 0, 0), 1, 80, 100))
    why = place(w, [stage(need("t", 6, 3, 0, 20))], ejf(1.5, j=2.0))[0].why
    assert why.startswith("ursa: F = 0.91 (D×Inc: cpu 1×0.5 + disk 1×0.25 + memory 0.8×0.2)")
    assert "W·T 3" in why
    assert "1 of 1 task" in why


def test_the_reason_counts_the_workers_that_lack_each_resource() -> None:
    w = cluster(((100, 100, 100), (0, 12, 0), 1, 80, 100), ((100, 100, 100), (0, 0, 0), 1, 5, 100))
    said = why_not(need("t", 0, 1, 0, 20), AlgorithmOne(w, chunk=4, stage_aware=True))
    assert said == "of 2 nodes 1 lacks disk to spare, 1 lacks memory"


# ---------------------------------------------------------------- an independent reading of the paper


class PlainWorker:
    """One worker in plain numbers; D is computed from scratch whenever it is asked for."""

    def __init__(self, rng: random.Random) -> None:
        self.rate = [rng.choice([50.0, 100.0, 220.0]) for _ in range(3)]
        self.pending = [rng.choice([0.0, rng.uniform(0, 30)]) for _ in range(3)]
        self.idle = rng.randint(0, 3)
        self.capacity = rng.choice([100.0, 200.0])
        self.free = rng.uniform(0, self.capacity)

    def d(self, r: int) -> float:
        if r == 3:
            return self.free / self.capacity
        if r == 0 and self.idle > 0:
            return 1.0
        apt = self.pending[r] / self.rate[r]
        return max(0.0, (EPT - apt) / EPT)

    def inc(self, task: list[float], r: int) -> float:
        return task[3] / self.capacity if r == 3 else task[r] / self.rate[r] / EPT

    def f(self, task: list[float]) -> float | None:
        if task[3] > self.free:
            return None
        total = 0.0
        for r in range(4):
            d, inc = self.d(r), self.inc(task, r)
            if d == 0 and inc > 0:
                return None
            total += d * min(inc, d)
        return total

    def add(self, task: list[float]) -> None:
        for r in range(3):
            self.pending[r] += task[r]
        if task[0] > 0:
            self.idle -= 1
        self.free -= task[3]

    def copy(self) -> PlainWorker:
        other = PlainWorker.__new__(PlainWorker)
        other.rate, other.capacity = self.rate, self.capacity
        other.pending, other.idle, other.free = list(self.pending), self.idle, self.free
        return other


def plain_score(tasks: list[list[float]], workers: list[PlainWorker]) -> tuple[float, list[tuple[int, int]]]:
    workers = [w.copy() for w in workers]
    plan: list[tuple[int, int]] = []
    score, bonus = 0.0, STAGE_BONUS
    for t, task in enumerate(tasks):
        best, best_f = None, -1.0
        for w, worker in enumerate(workers):
            f = worker.f(task)
            if f is not None and f > best_f + 1e-12:
                best, best_f = w, f
        if best is None:
            bonus = 0.0
        else:
            plan.append((t, best))
            workers[best].add(task)
            score += best_f
    return (score / len(plan) + bonus if plan else -math.inf), plan


def plain_placement(
    stages: list[tuple[float, list[list[float]]]], workers: list[PlainWorker], weight: float
) -> list[tuple[int, int, int]]:
    """Algorithm 1 word for word: every stage is scored again before every pick."""
    left = dict(enumerate(stages))
    out: list[tuple[int, int, int]] = []
    while left:
        scored = {s: plain_score(tasks, workers) for s, (_, tasks) in left.items()}
        scored = {s: (score + weight * left[s][0], plan) for s, (score, plan) in scored.items() if plan}
        if not scored:
            break
        best = max(scored, key=lambda s: (scored[s][0], -s))
        for t, w in scored[best][1]:
            workers[w].add(left[best][1][t])
            out.append((best, t, w))
        del left[best]
    return out


@pytest.mark.parametrize("seed", range(150))
def test_agrees_with_a_plain_reading_of_the_paper(seed: int) -> None:
    rng = random.Random(seed)
    plain = [PlainWorker(rng) for _ in range(rng.randint(1, 7))]
    stages = [
        (
            rng.uniform(0, 3),
            [
                task
                for task in [
                    [rng.choice([0.0, rng.uniform(0, 12)]) for _ in range(3)] + [rng.choice([0.0, rng.uniform(0, 60)])]
                    for _ in range(rng.randint(1, 6))
                ]
                for _ in range(rng.choice([1, 1, 1, 4]))  # tasks that are the same, in a row
            ],
        )
        for _ in range(rng.randint(1, 6))
    ]
    w = cluster(*[(tuple(p.rate), tuple(p.pending), p.idle, p.free, p.capacity) for p in plain])
    given = [
        Stage(str(s), "s", [Need(str(s), str(t), tuple(task)) for t, task in enumerate(tasks)])
        for s, (_, tasks) in enumerate(stages)
    ]
    ranking = ejf(0.3, **{str(s): elapsed for s, (elapsed, _) in enumerate(stages)})
    placed = [(int(p.need.job), int(p.need.task), p.worker) for p in place(w, given, ranking)]
    assert placed == plain_placement(stages, plain, 0.3)


@pytest.mark.parametrize("seed", range(60))
def test_few_values_of_f_give_the_same_plan_one_by_one_as_in_arrays(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    rows = [
        (
            tuple(rng.choice([10.0, rng.uniform(5, 15)]) for _ in range(3)),
            tuple(rng.uniform(0, 2) for _ in range(3)),
            float(rng.randint(0, 2)),
            rng.choice([50.0, 100.0]),
            100.0,
        )
        for _ in range(rng.randint(1, 4))
    ]
    needs = [
        Need(
            "j", str(t), (*(rng.choice([0.0, rng.uniform(0, 2)]) for _ in range(3)), rng.choice([0.0, 9.0, 30.0])),
            cores=rng.choice([0.0, 0.0, 1.5]), unknown_size=rng.choice([None, ResourceKind.CPU, ResourceKind.DISK]),
            allowed=rng.choice([None, np.array([rng.random() < 0.5 for _ in rows])]),
        )
        for t in range(rng.randint(1, 8))
        for _ in range(rng.choice([1, 3]))  # tasks that are the same, in a row
    ]  # fmt: skip
    start, limit, seen = rng.randrange(len(needs)), rng.choice([0, 0, 2]), []
    for few in (0, 10**6):
        monkeypatch.setattr(scoring, "_FEW", few)
        plan = stage_score(stage(*needs), cluster(*rows), start=start, limit=limit)
        placed = [(p.need.task, p.worker, p.why) for p in place(cluster(*rows), [stage(*needs)], ejf())]
        seen.append((plan.score, plan.whole, plan.chosen, plan.after, placed))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("seed", range(40))
def test_a_look_at_the_candidates_finds_what_a_look_at_all_workers_does(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    rows = [
        (
            tuple(rng.choice([10.0, rng.uniform(5, 15)]) for _ in range(3)),
            tuple(rng.uniform(0, 12) for _ in range(3)),
            float(rng.randint(0, 2)),
            rng.choice([50.0, 100.0]),
            100.0,
        )
        for _ in range(40)
    ]
    given = [
        Stage("j", str(s), [
            Need("j", f"{s}-{t}", (*(rng.choice([0.0, rng.uniform(0, 9)]) for _ in range(3)), rng.uniform(0, 40)))
            for t in range(4)
        ])
        for s in range(6)
    ]  # fmt: skip

    def placed() -> list[tuple[str, int, str]]:
        return [(p.need.task, p.worker, p.why) for p in place(cluster(*rows), given, ejf(j=1.0))]

    whole = placed()
    found: list[bool] = []
    among = ursa.score_among

    def counting(*args: Any) -> Any:
        plan = among(*args)
        found.append(plan is not None)
        return plan

    monkeypatch.setattr(ursa, "score_among", counting)
    monkeypatch.setattr(candidates, "_FROM_WORKERS", 0)
    monkeypatch.setattr(candidates, "_GROUPS", 20)
    monkeypatch.setattr(candidates, "_BEST", 3)
    assert placed() == whole
    assert found, "no stage was scored a second time"
