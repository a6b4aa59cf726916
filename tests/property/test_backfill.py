"""A job that passes the first one in line never delays it, in whatever order jobs end that the known lengths allow."""

from __future__ import annotations

import math
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from master.core.backfill import Backfill, Running

MEMORY = st.integers(1, 12)
TIME_S = st.floats(0.0, 20.0)


def starts_at_s(lacks: int, ends: list[tuple[float, int]]) -> float:
    """Return the time when the memory that ended jobs have given back suffices."""
    for end_s, memory in sorted(ends):
        lacks -= memory
        if lacks <= 0:
            return end_s
    return math.inf


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, list[tuple[Running, float]], list[tuple[int, float, float]]]:
    """Draw the memory that the first job lacks; running jobs and their ends; candidates: memory, longest and true
    length.
    """
    running = [
        (Running(memory, least_s), least_s + more_s)
        for memory, least_s, more_s in draw(
            st.lists(st.tuples(MEMORY, st.sampled_from([0.0, 2.0, 5.0, 9.0]), TIME_S), min_size=1, max_size=7)
        )
    ]
    lacks = draw(st.integers(1, sum(job.memory_bytes for job, _ in running)))
    candidates = [
        (memory, most_s, (most_s if most_s < math.inf else 40.0) * part)
        for memory, most_s, part in draw(
            st.lists(st.tuples(MEMORY, st.sampled_from([1.0, 3.0, 8.0, math.inf]), st.floats(0.0, 1.0)), max_size=8)
        )
    ]
    return lacks, running, candidates


@given(runs())
def test_the_first_starts_when_it_would_alone(
    drawn: tuple[int, list[tuple[Running, float]], list[tuple[int, float, float]]],
) -> None:
    lacks, running, candidates = drawn
    backfill = Backfill(lacks, [job for job, _ in running])
    passed = [(memory, lasts_s) for memory, most_s, lasts_s in candidates if backfill.take(memory, most_s)]
    ends = [(end_s, job.memory_bytes) for job, end_s in running]
    alone_s = starts_at_s(lacks, ends)
    beside_s = starts_at_s(
        lacks + sum(memory for memory, _ in passed), ends + [(end_s, memory) for memory, end_s in passed]
    )
    assert beside_s <= alone_s


@given(runs(), MEMORY)
def test_of_unknown_length_a_refused_job_might_have_kept_it_waiting(
    drawn: tuple[int, list[tuple[Running, float]], list[tuple[int, float, float]]], memory: int
) -> None:
    lacks, running, _ = drawn
    held = [job.memory_bytes for job, _ in running]
    sums = {sum(some) for count in range(1, len(held) + 1) for some in combinations(held, count)}
    keeps_waiting = any(lacks <= each < lacks + memory for each in sums)
    assert Backfill(lacks, [Running(each) for each in held]).take(memory) is not keeps_waiting


def test_with_very_many_jobs_none_passes_so_that_the_answer_comes_soon() -> None:
    running = [Running(2**number) for number in range(40)]
    assert not Backfill(2**39, running).take(1)
    assert Backfill(2**39, [*running, Running(1, 5.0)]).take(1, 5.0) is False
