"""The results of orders in the model."""

from __future__ import annotations

import pytest

from bench.mix import orders
from bench.mix.calibration import costs_of
from bench.mix.jobs import Job
from bench.mix.kinds import KINDS
from bench.mix.orders import Clairvoyant, Learning, TrueDistributions, run
from bench.mix.plan import draw_plan

COSTS = costs_of(orders.COSTS.read_bytes())


def job(number: int, arrival_s: float, cpu_s: float, application: str = "sort", *, deadline_s: float = 0.0) -> Job:
    return Job(number, "alice", "sort", application, True, 1.0, cpu_s, cpu_s, arrival_s, deadline_s=deadline_s)


def test_the_least_left_goes_first_but_for_a_reservation() -> None:
    assert run([job(0, 0.0, 4.0), job(1, 1.0, 1.0)], 1.0, Clairvoyant()) == pytest.approx((5 + 1) / 2)
    reserved = [job(0, 0.0, 4.0, deadline_s=7.0), job(1, 1.0, 1.0)]  # six seconds are reserved
    assert run(reserved, 1.0, Clairvoyant()) == pytest.approx((4 + 4) / 2)
    assert run(reserved, 1.0, Clairvoyant(), unreserved=True) == pytest.approx((5 + 1) / 2)
    anticipated_s = run(reserved, 1.0, Clairvoyant(), anticipated=True)
    assert anticipated_s == pytest.approx((5 + 1) / 2), "it had a second before its time"


def test_it_learns_from_ended_jobs() -> None:
    jobs = [job(0, 0.0, 9.0, "long"), job(1, 0.0, 1.0, "short")]
    before = [job(2, 0.0, 9.0, "long"), job(3, 0.0, 1.0, "short")] * 5
    assert run(jobs, 1.0, Learning(before)) == pytest.approx((10 + 1) / 2)
    assert run(jobs, 1.0, Learning()) > (10 + 1) / 2, "before a look at the order it takes the first one"


def test_no_order_is_ahead_of_the_true_sizes_on_one_processor() -> None:
    plan = draw_plan(3, KINDS, COSTS, window_s=120.0, cores=1.0)
    jobs = [each for each in plan.jobs if each.kind in {"sort", "compress", "query"}]
    best_s = run(jobs, 1.0, Clairvoyant())
    assert best_s <= run(jobs, 1.0, TrueDistributions(plan, COSTS, 1.0)) + 1e-9
    assert best_s <= run(jobs, 1.0, Learning()) + 1e-9


def test_a_plan_s_means_are_of_the_same_jobs() -> None:
    plan = draw_plan(9, KINDS, COSTS, window_s=120.0, cores=2.0)
    made = orders.means_s(plan, COSTS, 1.0)
    assert list(made) == ["equal", "nothing", "known", "distributions", "clairvoyant"]
    assert all(made[name] >= 0.9 * made["clairvoyant"] for name in ("nothing", "known", "distributions"))
