"""The Gittins index against its definition, and against the orders that it equals by theory."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from master.ordering import ClusterView, JobSizes, JobView, OrderingSettings, ordering_of
from master.ordering.gittins import UNKNOWN, indices
from master.ordering.sizes import CELLS, EDGES, Floats, cell_of

_SIZES = st.floats(0.02, 1e6)
_AGES = st.floats(0.0, 1e6)


@st.composite
def _distributions(draw: st.DrawFn) -> Floats:
    cells = draw(st.dictionaries(st.integers(0, CELLS - 1), st.floats(0.01, 1.0), min_size=1, max_size=6))
    found = np.zeros(CELLS)
    found[list(cells)] = list(cells.values())
    return found / (found.sum() + draw(st.sampled_from([0.0, 0.5])))


def _by_definition(known: Floats, age: float) -> float:
    """The supremum over Δ, worked out by loops at many Δ within each cell."""
    best = 0.0
    for last in range(CELLS):
        for part in (0.25, 0.5, 0.75, 1.0):
            until = EDGES[last] + part * (EDGES[last + 1] - EDGES[last])
            if until <= age:
                continue
            ended = taken = 0.0
            alive = max(0.0, 1.0 - known.sum())
            for cell in range(CELLS):
                low, high = max(EDGES[cell], age), EDGES[cell + 1]
                if high <= low:
                    continue
                density = known[cell] / (EDGES[cell + 1] - EDGES[cell])
                alive += density * (high - low)
                stop = min(high, until)
                if stop > low:
                    ended += density * (stop - low)
                    taken += density * (stop - low) * ((low + stop) / 2 - age)
            taken += max(0.0, alive - ended) * (until - age)
            best = max(best, ended / taken if ended > 1e-12 and taken > 0 else 0.0)
    return best


@given(_distributions(), st.floats(0.0, 1e5))
@settings(max_examples=15)
def test_the_index_equals_its_definition(known: Floats, age: float) -> None:
    (ours,) = indices(known[None, :], np.array([age]))
    assert ours == pytest.approx(_by_definition(known, age), rel=1e-6, abs=1e-12)


def _alike(size: float) -> Floats:
    known = np.zeros(CELLS)
    known[cell_of(size)] = 1.0
    return known


@given(st.lists(st.tuples(_SIZES, st.floats(0.0, 0.9)), min_size=2, max_size=8))
def test_known_sizes_are_ordered_by_their_remainder(jobs: list[tuple[float, float]]) -> None:
    """SRPT: as exactly as sizes are kept, in cells of a factor of 1.41."""
    ages = np.array([size * part for size, part in jobs])
    index = indices(np.stack([_alike(size) for size, _ in jobs]), ages)
    for (one, age), mine in zip(jobs, index.tolist(), strict=True):
        for (other, part), theirs in zip(jobs, index.tolist(), strict=True):
            if one - one * age > 3 * (EDGES[cell_of(other) + 1] - other * part):
                assert mine <= theirs


@given(st.floats(0.3, 3.0), st.lists(st.floats(0.02, 1e4), min_size=2, max_size=20))
def test_a_decreasing_hazard_rate_gives_las(shape: float, ages: list[float]) -> None:
    beyond = (EDGES[1] / np.maximum(EDGES, EDGES[1])) ** shape
    known = beyond[:-1] - beyond[1:]
    edges = np.array([EDGES[cell_of(age)] for age in sorted(ages)])  # within a cell all is uniform
    index = indices(np.stack([known] * len(edges)), edges)
    assert all(less >= more * (1 - 1e-9) for less, more in pairwise(index.tolist()))


@given(st.integers(4, CELLS - 20), st.lists(st.floats(0.0, 1.0), min_size=2, max_size=20))
def test_an_increasing_hazard_rate_preempts_nothing(first: int, parts: list[float]) -> None:
    """A job that has begun goes before a new one of its kind: uniform sizes, so the hazard rate grows."""
    top = EDGES[first + 12]
    known = np.diff(np.minimum(EDGES, top)) / top
    ages = np.array(sorted(part * top * 0.99 for part in parts))
    index = indices(np.stack([known] * len(ages)), ages)
    assert all(less <= more * (1 + 1e-9) for less, more in pairwise(index.tolist()))


@given(st.lists(_AGES, min_size=1, max_size=10, unique=True))
def test_without_any_job_known_the_order_is_by_queue_then_first_come(ages: list[float]) -> None:
    ordering = ordering_of(OrderingSettings("gittins"))
    jobs = [JobView(f"j{n}", service=age, sequence=n, user=f"u{n % 2}") for n, age in enumerate(ages)]
    order = [int(name[1:]) for name in ordering.rank(jobs, ClusterView()).order()]
    for before, after in pairwise(order):
        assert (UNKNOWN.queue_of(ages[before]), before) < (UNKNOWN.queue_of(ages[after]), after)


@given(st.lists(_SIZES, min_size=1, max_size=20), st.lists(st.floats(1.0, 1e6), min_size=2, max_size=6, unique=True))
def test_beyond_all_that_is_known_the_lower_queue_goes_first(sizes: list[float], ages: list[float]) -> None:
    learnt = JobSizes()
    for size in sizes:
        learnt.learn("eve", "sort", size)
    beyond = [EDGES[-1] + age for age in ages]
    jobs = [JobView(f"j{n}", service=age, sequence=n, user="eve", application="sort") for n, age in enumerate(beyond)]
    fresh = JobView("fresh", sequence=99, user="eve", application="sort")
    order = ordering_of(OrderingSettings("gittins"), learnt).rank([*jobs, fresh], ClusterView()).order()
    assert order == [
        "fresh",
        *(f"j{n}" for n in sorted(range(len(beyond)), key=lambda n: (UNKNOWN.queue_of(beyond[n]), n))),
    ]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.floats(0.001, 1e9)), max_size=40))
def test_probabilities_are_probabilities_and_survive_a_restart(ended: list[tuple[str, str, float]]) -> None:
    learnt, next_one = JobSizes(), JobSizes()
    for user, application, size in ended:
        learnt.learn(user, application, size)
    kept = learnt.unstored.take()
    next_one.restore(known for known in kept.values() if known is not None)
    kinds = [(user, application) for user in "abc" for application in "xyz"]
    known = learnt.probabilities(kinds)
    assert (known >= 0).all()
    assert (known.sum(axis=1) <= 1 + 1e-9).all()
    assert (known == next_one.probabilities(kinds)).all()
    assert next_one.unstored.take() == {}
