"""Progressive filling: fair, work-conserving, never more than there is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.executors.sharing import per_machine, shares


def share(wanted: list[list[float]], capacity: list[float]) -> list[float]:
    found: list[float] = shares(np.array(wanted), np.zeros(len(wanted), dtype=np.intp), np.array([capacity])).tolist()
    return found


def test_enough_for_all() -> None:
    assert share([[4.0], [6.0]], [10.0]) == [1.0, 1.0]


def test_a_shared_shortage_slows_all_equally() -> None:
    assert share([[10.0], [10.0]], [10.0]) == [0.5, 0.5]


def test_an_executor_that_does_not_use_the_short_resource_goes_on() -> None:
    """The first two share the disk; the third takes the CPU that they leave."""
    got = share([[4.0, 10.0], [4.0, 10.0], [12.0, 0.0]], [16.0, 10.0])
    assert got == pytest.approx([0.5, 0.5, 1.0])


def test_machines_do_not_share() -> None:
    wanted, machine = np.array([[10.0], [10.0], [10.0]]), np.array([0, 0, 1])
    assert shares(wanted, machine, np.array([[10.0], [10.0]])).tolist() == [0.5, 0.5, 1.0]


AMOUNTS = st.lists(st.lists(st.integers(0, 10), min_size=3, max_size=3), min_size=1, max_size=8)


@settings(max_examples=100, deadline=None)
@given(AMOUNTS, st.data())
def test_nothing_exceeds_the_capacity_and_no_executor_is_slowed_without_a_reason(
    wanted: Any, data: st.DataObject
) -> None:
    rows = np.array(wanted, dtype=float)
    machine = np.array(data.draw(st.lists(st.integers(0, 1), min_size=len(rows), max_size=len(rows))))
    capacity = np.full((2, 3), 10.0)
    level = shares(rows, machine, capacity)
    used = per_machine(rows * level[:, None], machine, 2)
    assert ((level >= 0) & (level <= 1)).all() and (used <= capacity * (1 + 1e-6)).all()
    full = used >= capacity * (1 - 1e-6)
    for row, on, reached in zip(rows, machine, level, strict=True):
        assert reached > 1 - 1e-6 or (full[on] & (row > 0)).any()
