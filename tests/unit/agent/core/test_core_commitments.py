"""Resources held over time: step functions, added up exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.commitments import Steps, steps, total
from agent.core.plans import Plan
from penstock.model.resource_vector import NOTHING, ResourceVector


def cores(*values: float) -> tuple[ResourceVector, ...]:
    return tuple((value, 0.0, 0.0, 100 * value) for value in values)


def plan(*values: float, slot_s: float = 3.0, elapsed_s: float = 0.0, now: float = 10.0) -> Steps:
    return steps(Plan(slot_s, elapsed_s, cores(*values)), NOTHING, now)


def test_boundaries_that_rounding_keeps_apart_are_one() -> None:
    """One falls where the other rises: at no time are both held."""
    third = 0.1 + 0.2
    both = total([plan(4, 1, slot_s=0.3), plan(1, 4, slot_s=third)], 10.0)
    assert both.held[:, 0].tolist() == [5.0, 5.0]


def test_slots_that_begin_together_are_the_same_for_rounding() -> None:
    held = total([plan(*range(1, 200), slot_s=0.1, now=0.3)], 0.3)
    assert held.slots(0.3, 0.1, 600)[:, 0].tolist() == list(range(1, 200))


def test_the_first_time_at_which_there_is_too_little() -> None:
    wanted = plan(1, 2, 3)
    both = total([wanted, plan(1, 1, 2)], 10.0)
    assert both.over((5.0, 1.0, 1.0, 1e6), wanted) is None
    assert both.over((4.0, 1.0, 1.0, 1e6), wanted) == (0, 16.0)
    assert both.over((5.0, 1.0, 1.0, 250.0), wanted) == (3, 13.0)
    assert both.over((1.0, 1.0, 1.0, 1e6), plan(0, 0, 1)) == (0, 16.0), "of the rest it wants nothing"


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 9), min_size=1, max_size=6),
            st.integers(1, 8),  # slot_s in eighths: exact in binary
            st.integers(0, 7),
        ),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 16),
)
def test_every_moment_has_the_sum_and_every_slot_its_most(
    spec: list[tuple[list[int], int, int]], slot_eighths: int
) -> None:
    now = 4.0
    plans = [
        Plan(eighths / 8, min(elapsed, eighths - 1) / 8, cores(*map(float, values)))
        for values, eighths, elapsed in spec
    ]
    held = total([steps(each, NOTHING, now) for each in plans], now)
    moments = now + np.arange(0, 16 * 8) / 8

    def expected(at: float) -> float:
        return sum(each.amounts[each.slot(at - now)][0] for each in plans)

    assert [held.at(float(at))[0] for at in moments] == [pytest.approx(expected(float(at))) for at in moments]
    slot_s = slot_eighths / 8
    slots = held.slots(now, slot_s, 600)[:, 0]
    for number, value in enumerate(slots.tolist()):
        end = now + (number + 1) * slot_s if number < len(slots) - 1 else np.inf
        inside = [expected(float(at)) for at in moments if now + number * slot_s <= at < end]
        assert value == max(inside, default=expected(1e6))
