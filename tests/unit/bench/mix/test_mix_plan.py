"""The plan of the mix: one seed, one plan; loads within bounds; heavy tails; recurring work that recurs."""

from __future__ import annotations

import random
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.mix.jobs import USERS, Cost, Kind
from bench.mix.plan import LARGEST, LEAST_LOAD, MOST_LOAD, Plan, draw_plan, first_pass, pareto
from bench.mix.singles import ARCHIVE, HOG, NIGHTLY

KINDS = (Kind("sort", 2.0), Kind("compress", 1.0), Kind("query", 3.0, sized=False))
COSTS = {"sort": Cost(0.1, 0.4, 0.2, 0.5), "compress": Cost(0.05, 0.6, 0.1, 0.7), "query": Cost(0.8, 0.0, 0.9, 0.0)}
seeds = st.integers(min_value=0, max_value=2**32)


def plan(seed: int, window_s: float = 360.0) -> Plan:
    return draw_plan(seed, KINDS, COSTS, window_s=window_s, cores=2.0)


@settings(max_examples=12)
@given(seeds, st.floats(min_value=300.0, max_value=3600.0))
def test_a_plan_is_that_of_its_seed_within_its_bounds(seed: int, window_s: float) -> None:
    made = plan(seed, window_s)
    assert plan(seed, window_s) == made
    assert LEAST_LOAD <= made.load <= MOST_LOAD + 1e-9
    arrivals_s = [job.arrival_s for job in made.jobs]
    assert arrivals_s == sorted(arrivals_s)
    assert 0 <= arrivals_s[0] <= arrivals_s[-1] <= made.window_s
    assert [job.number for job in made.jobs] == list(range(len(made.jobs)))
    known = {(each.application, each.user, each.kind) for each in made.series}
    for job in made.jobs:
        assert ((job.application, job.user, job.kind) in known) == job.recurring
        if job.kind != HOG:
            assert job.cpu_s == COSTS[job.kind].cpu_s(job.units)
            assert job.alone_s == COSTS[job.kind].alone_s(job.units)
        assert job.kind != "query" or job.units == 1.0, "a kind without sizes has one unit each time"


@settings(max_examples=12)
@given(seeds)
def test_each_round_has_a_night_with_a_deadline_a_hog_and_an_archive(seed: int) -> None:
    made = plan(seed)
    [nightly] = [job for job in made.jobs if job.deadline_s]
    assert (nightly.application, nightly.recurring) == (NIGHTLY, True)
    assert nightly.alone_s == pytest.approx(0.2 * made.window_s)
    assert nightly.deadline_s == pytest.approx(nightly.arrival_s + 2 * nightly.alone_s)
    assert nightly.deadline_s <= made.window_s
    [hog] = [job for job in made.jobs if job.kind == HOG]
    assert hog.memory_bytes and not hog.cpu_s
    assert (made.archive.kind, made.archive.leftovers, made.archive.number) == (ARCHIVE, True, len(made.jobs))
    assert not any(job.leftovers for job in made.jobs)


def test_every_user_and_every_kind_has_jobs() -> None:
    made = plan(1, window_s=1800.0)
    assert {job.user for job in made.jobs} == set(USERS)
    assert {job.kind for job in made.jobs} == {kind.name for kind in KINDS} | {HOG}
    assert {job.recurring for job in made.jobs} == {True, False}


def test_sizes_have_a_heavy_tail() -> None:
    draw = random.Random(1)
    sizes = sorted(pareto(draw) for _ in range(10_000))
    assert sizes[0] >= 1
    assert sizes[-1] <= LARGEST
    assert sizes[-1] > 15 * median(sizes)
    largest_tenth = sum(sizes[-1_000:])
    assert largest_tenth > 0.3 * sum(sizes)


def test_a_window_too_short_for_any_job_is_refused() -> None:
    with pytest.raises(ValueError, match="too short"):
        draw_plan(1, KINDS, COSTS, window_s=0.1, cores=2.0)


def test_in_the_first_pass_each_series_runs_once_from_the_beginning_without_a_deadline() -> None:
    made = plan(4)
    jobs = first_pass(made, COSTS).jobs
    assert sorted((each.application, each.user, each.units) for each in jobs) == sorted(
        (each.application, each.user, each.units) for each in made.series
    )
    assert all(each.arrival_s == each.deadline_s == 0 and each.cpu_s > 0 for each in jobs)
    assert NIGHTLY in {each.application for each in jobs}
