"""T_alloc that tunes itself: steps up where it is the limit and no container is preempted, back by a part where one
is.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.preemption import AllocationThreshold
from agent.core.settings import TuningSettings

SETTINGS = TuningSettings(least=0.4, most=0.9, step=0.05, back_off=0.8, calm_s=10.0, margin=0.05)


def run(threshold: AllocationThreshold, seconds: range, utilization: float, preempted: bool = False) -> float:
    for now in seconds:
        threshold.sampled(utilization, now + 1 if preempted else 0, float(now))
    return threshold.t_alloc


def test_without_settings_it_is_the_operator_s_value() -> None:
    assert run(AllocationThreshold(0.7, None), range(1000), 1.0, preempted=True) == 0.7


def test_it_rises_a_step_each_calm_time_where_it_limits() -> None:
    assert run(AllocationThreshold(0.6, SETTINGS), range(31), 0.7) == pytest.approx(0.75)


def test_it_stays_where_it_is_not_the_limit() -> None:
    assert run(AllocationThreshold(0.6, SETTINGS), range(1000), 0.3) == 0.6


def test_a_row_of_preemptions_is_one_step_back_and_a_new_calm_time() -> None:
    threshold = AllocationThreshold(0.8, SETTINGS)
    assert run(threshold, range(10), 0.9, preempted=True) == pytest.approx(0.64)
    for now in range(10, 20):
        threshold.sampled(0.9, 10, float(now))
        assert threshold.t_alloc == pytest.approx(0.64 if now < 19 else 0.69)  # calm begins after the last of them


def test_it_finds_the_load_that_the_node_bears_and_stays_near_it() -> None:
    """A node on which more than 0.72 is preempted, and utilization follows T_alloc."""
    threshold = AllocationThreshold(0.5, SETTINGS)
    preemptions = 0
    seen = []
    for now in range(4000):
        preemptions += threshold.t_alloc > 0.72
        seen.append(threshold.sampled(threshold.t_alloc, preemptions, float(now)))
    late = seen[1000:]
    assert min(late) > 0.55 and max(late) < 0.8
    assert sum(late) / len(late) == pytest.approx(0.66, abs=0.05)


@given(st.lists(st.tuples(st.floats(0, 1.5), st.booleans(), st.floats(0, 30)), max_size=200), st.floats(0.4, 0.9))
def test_it_never_leaves_its_bounds(ticks: list[tuple[float, bool, float]], start: float) -> None:
    threshold = AllocationThreshold(start, SETTINGS)
    now, preemptions = 0.0, 0
    for utilization, preempted, pause_s in ticks:
        now += pause_s
        preemptions += preempted
        assert SETTINGS.least <= threshold.sampled(utilization, preemptions, now) <= SETTINGS.most
