"""Amounts over time, and the plan that is made of them, held to arrays with one number for each step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.reservations.plan import Piece, Plan, Steps
from master.reservations.rdl import Bundle
from penstock.model.resource_vector import ResourceVector
from tests.unit.master.reservations.plan_bed import CORE, rebuilt

_SPANS = st.tuples(st.integers(0, 20), st.one_of(st.none(), st.integers(1, 12)), st.integers(-5, 5), st.integers(-5, 5))


@given(st.lists(_SPANS, max_size=12))
def test_additions_are_what_they_would_be_step_by_step(spans: list[tuple[int, int | None, int, int]]) -> None:
    steps, plain = Steps(ResourceVector(10.0, 0.0, 0.0, 3.0)), np.tile([10.0, 0.0, 0.0, 3.0], (40, 1))
    for start, length, cores, memory in spans:
        finish = None if length is None else start + length
        steps.add(start, finish, (cores, 0, 0, memory))
        plain[start:finish] += (cores, 0, 0, memory)
    assert np.array_equal([steps.at(step) for step in range(40)], plain)
    assert steps.starts == sorted(set(steps.starts))
    assert all(a != b for a, b in zip(steps.rows, steps.rows[1:], strict=False))  # as short as it can be
    assert steps.lowest(3, 30) == plain[3:30].min(axis=0).tolist()


_PIECES = st.builds(
    lambda start, length, number: Piece(start, start + length, number, CORE),
    st.integers(0, 20),
    st.integers(1, 10),
    st.integers(1, 4),
)
_ACTS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from("abc"), st.lists(_PIECES, max_size=3)),
    st.tuples(st.just("remove"), st.sampled_from("abc"), st.just([])),
    st.tuples(st.just("capacity"), st.integers(0, 25), st.integers(0, 30)),
)


@given(st.lists(_ACTS, max_size=15))
def test_after_additions_changes_and_removals_the_rest_remains(acts: list[tuple[str, object, object]]) -> None:
    plan, capacity, held = Plan(Bundle(cpu_cores=20.0)), np.full(60, 20.0), dict[str, list[Piece]]()
    for kind, name, more in acts:
        if kind == "capacity":
            plan.set_capacity(int(str(name)), Bundle(cpu_cores=float(str(more))))
            capacity[int(str(name)) :] = float(str(more))
        elif kind == "remove":
            if str(name) in held:
                plan.remove(str(name))
                del held[str(name)]
        else:
            assert isinstance(more, list)
            if str(name) in held:
                plan.remove(str(name))
            plan.add(str(name), more)
            held[str(name)] = more
    used = np.zeros(60)
    for pieces in held.values():
        for piece in pieces:
            used[piece.start : piece.finish] += piece.number
    assert [plan.free.at(step)[0] for step in range(60)] == pytest.approx(capacity - used)
    assert [plan.capacity.at(step)[0] for step in range(60)] == pytest.approx(capacity)
    over = np.flatnonzero(used > capacity)
    assert plan.overcommitted() == (int(over[0]) if len(over) else None)
    assert {name: sorted(each.work for each in pieces) for name, pieces in plan.reservations().items()} == {
        name: sorted(each.work for each in pieces) for name, pieces in held.items()
    }


def test_every_dimension_counts() -> None:
    plan = Plan(Bundle(cpu_cores=4.0, memory_bytes=100))
    plan.add("a", [Piece(0, 5, 2, Bundle(cpu_cores=0.5, memory_bytes=60))])
    assert plan.free.at(3) == [3.0, 0, 0, -20]
    assert plan.overcommitted(2) == 2
    assert plan.overcommitted(5) is None


def test_capacity_for_a_while() -> None:
    plan = Plan(Bundle(cpu_cores=4.0))
    plan.set_capacity(3, Bundle(cpu_cores=1.0), until=6)
    assert [plan.free.at(step)[0] for step in range(8)] == [4, 4, 4, 1, 1, 1, 4, 4]
    assert rebuilt(plan, [(0, Bundle(cpu_cores=4.0))]).free.rows == [[4.0, 0, 0, 0]]


def test_names_are_those_that_are_there() -> None:
    plan = Plan(CORE)
    plan.add("a", [])
    assert "a" in plan.reservations()
    with pytest.raises(KeyError):
        plan.add("a", [])
    with pytest.raises(KeyError):
        plan.remove("b")
