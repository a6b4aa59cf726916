"""The mean time of a plan's jobs in an ideal order, and with equal shares."""

from __future__ import annotations

import random

import pytest

from bench.mix.ideal import equal_shares, mean_s, shortest_first, told
from bench.mix.jobs import Job
from bench.mix.kinds import SEND
from bench.mix.singles import HOG


def job(number: int, arrival_s: float, alone_s: float, *, cores: float = 1.0, kind: str = "sort") -> Job:
    return Job(number, "alice", kind, kind, False, 1.0, cores * alone_s, alone_s, arrival_s)


def test_the_short_job_goes_first_and_equal_shares_end_both_late() -> None:
    jobs = [job(0, 0.0, 4.0), job(1, 0.0, 1.0)]
    assert mean_s(jobs, 1.0, shortest_first) == pytest.approx((1 + 5) / 2)
    assert mean_s(jobs, 1.0, equal_shares) == pytest.approx((2 + 5) / 2)


def test_one_that_comes_later_with_less_left_goes_before() -> None:
    jobs = [job(0, 0.0, 10.0), job(1, 2.0, 3.0)]
    assert mean_s(jobs, 1.0, shortest_first) == pytest.approx((13 + 3) / 2)


def test_a_job_gets_no_more_processors_than_it_keeps_busy() -> None:
    jobs = [job(0, 0.0, 2.0, cores=1.0), job(1, 0.0, 3.0, cores=2.0)]
    # The second has one processor for two seconds (2 of its 6 core-seconds), then both.
    assert mean_s(jobs, 2.0, shortest_first) == pytest.approx((2 + 4) / 2)
    assert equal_shares([0.5, 2.0, 1.0], 3.0) == pytest.approx([0.5, 1.5, 1.0])
    assert equal_shares([0.25, 2.0, 2.0], 2.0) == pytest.approx([0.25, 0.875, 0.875])


def test_transfers_share_the_link_and_no_processor() -> None:
    jobs = [job(0, 0.0, 2.0, kind=SEND), job(1, 0.0, 2.0, kind=SEND), job(2, 0.0, 2.0)]
    assert mean_s(jobs, 1.0, equal_shares) == pytest.approx((4 + 4 + 2) / 3)


def test_the_hog_is_in_no_mean() -> None:
    assert mean_s([job(0, 0.0, 2.0), job(1, 0.0, 0.0, kind=HOG)], 1.0, shortest_first) == pytest.approx(2.0)


def test_on_one_processor_no_plan_is_worse_in_the_ideal_order() -> None:
    draw = random.Random(4)
    for _ in range(50):
        jobs = [job(n, draw.uniform(0, 20), draw.paretovariate(1.1), cores=1.0) for n in range(15)]
        ideal_s, equal_s = mean_s(jobs, 1.0, shortest_first), mean_s(jobs, 1.0, equal_shares)
        assert ideal_s <= equal_s + 1e-9
        assert ideal_s >= sum(each.alone_s for each in jobs) / len(jobs) - 1e-9


def test_the_report_names_both_means() -> None:
    text = told([job(0, 0.0, 4.0), job(1, 0.0, 1.0)], 1.0)
    assert "mean 3 s by the least left" in text
    assert "3.5 s with equal shares (14% between them)" in text


def test_the_means_are_also_printed_for_jobs_as_slow_as_the_machine_was() -> None:
    jobs = [job(0, 0.0, 4.0), job(1, 0.0, 1.0), job(2, 0.0, 1.0, kind=SEND)]
    text = told(jobs, 1.0, took_cpu_s=12.0)  # twice as much as alone
    assert told(jobs, 1.0) in text
    assert "2.00 of the plan's: mean 4.333 s by" in text, "(2 + 10 + 1) / 3"
