"""Plans as arrays equal plans, and an allowance of a room fits at every moment."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agent.core.plans import Plan, Room
from penstock.model.resource_vector import ResourceVector

WHOLE: ResourceVector = (10.0, 10.0, 10.0, 10.0)
amounts = st.tuples(*[st.integers(0, 8).map(float)] * 4)
times = st.floats(0.0, 40.0).map(lambda value: round(value, 3))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    slot_s = draw(st.sampled_from([1.0, 2.0, 3.0, 7.0]))
    return Plan(slot_s, draw(st.integers(0, 9)) / 10 * slot_s, tuple(draw(st.lists(amounts, min_size=1, max_size=8))))


@given(plan=plans(), begins=st.lists(times, min_size=1, max_size=5), lasts=times)
def test_an_array_has_the_same_highest(plan: Plan, begins: list[float], lasts: float) -> None:
    found = plan.held().highest(np.array(begins), np.array(begins) + lasts)
    assert [tuple(row) for row in found.tolist()] == [plan.highest(begin, begin + lasts) for begin in begins]


@given(wanted=plans(), others=st.lists(plans(), max_size=3), moments=st.lists(times, min_size=1, max_size=20))
def test_an_allowance_fits_at_every_moment_and_is_as_large_as_possible(
    wanted: Plan, others: list[Plan], moments: list[float]
) -> None:
    room = Room(WHOLE, [plan.held() for plan in others])
    allowed = room.allows(wanted)
    assert (allowed.slot_s, allowed.elapsed_s, len(allowed.amounts)) == (
        wanted.slot_s, wanted.elapsed_s, len(wanted.amounts),
    )  # fmt: skip
    end_s = len(wanted.amounts) * wanted.slot_s - wanted.elapsed_s
    for moment in [moment for moment in moments if moment < end_s]:
        held = [sum(values) for values in zip(*(plan.highest(moment, moment) for plan in others), strict=True)]
        for index, amount in enumerate(allowed.highest(moment, moment)):
            asked = wanted.highest(moment, moment)[index]
            assert amount <= asked
            assert not amount or amount + (held[index] if held else 0.0) <= WHOLE[index]
    peaks = [sum(values) for values in zip(*(max_of(plan) for plan in (wanted, *others)), strict=True)]
    if all(peak <= most for peak, most in zip(peaks, WHOLE, strict=True)):
        assert allowed is wanted


def max_of(plan: Plan) -> ResourceVector:
    return plan.highest(0.0, 1e9)
