"""Timers with one period come at the same instants."""

from __future__ import annotations

import pytest

from penstock.ticks import BETWEEN, next_tick_s


@pytest.mark.parametrize(
    ("now_s", "period_s", "due_s"),
    [(7.0, 1.0, 8.0), (7.004, 1.0, 8.0), (6.9996, 1.0, 8.0), (7.6, 1.0, 8.0), (7.95, 1.0, 9.0), (7.2, 0.25, 7.25)],
)
def test_the_next_multiple_that_is_more_than_a_tenth_of_a_period_away(
    now_s: float, period_s: float, due_s: float
) -> None:
    assert next_tick_s(now_s, period_s) == pytest.approx(due_s)


@pytest.mark.parametrize(
    ("now_s", "period_s", "due_s"), [(7.0, 1.0, 7.5), (7.5, 1.0, 8.5), (7.4996, 1.0, 8.5), (7.1, 0.5, 7.25)]
)
def test_between_the_multiples(now_s: float, period_s: float, due_s: float) -> None:
    assert next_tick_s(now_s, period_s, BETWEEN) == pytest.approx(due_s)
