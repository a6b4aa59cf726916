"""The slots until an executor ends, as a round counts them."""

from __future__ import annotations

import pytest

from master.placement.availability import end_in
from tests.unit.master.core.executor_bed import profile


@pytest.mark.parametrize(
    ("elapsed_s", "slots"), [(0.0, 3), (0.5, 3), (1.0, 2), (2.5, 1), (3.0 - 1e-9, 1), (3.0, 9), (4.0, 9)]
)
def test_an_executor_that_has_not_ended_runs_for_a_slot_at_least(elapsed_s: float, slots: int) -> None:
    """Within rounding errors of its end it ran for none: what remains of the node until then was 0 / 0."""
    assert end_in(profile((1, 100), (2, 100), (1, 100)), elapsed_s, 1.0, 9) == slots


def test_of_an_executor_without_an_end_all_slots_are_counted() -> None:
    assert end_in(profile((1, 100)), 0.5, 1.0, 9) == 9
