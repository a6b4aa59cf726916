"""Runs of different length on one scale."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.prediction import Run, Settings
from master.prediction.align import at_lengths, stretched, whole

_SETTINGS = Settings(1, 1.0, 1)
_SERIES = st.lists(st.floats(0, 1e9), min_size=1, max_size=30)


@given(_SERIES, st.integers(1, 60))
def test_stretching_keeps_the_mean_and_the_bounds(values: list[float], slots: int) -> None:
    usage = np.array([values])
    other = stretched(usage, slots)
    assert other.shape == (1, slots)
    assert other.mean() == pytest.approx(usage.mean(), rel=1e-9, abs=1e-6)
    assert other.min() >= usage.min() - 1e-6 * (1 + usage.max())
    assert other.max() <= usage.max() * (1 + 1e-9) + 1e-6


def test_twice_as_long_says_each_value_twice() -> None:
    assert stretched(np.array([[1.0, 3.0]]), 4).tolist() == [[1, 1, 3, 3]]


def test_each_stage_has_a_length_of_its_own() -> None:
    usage = np.array([[1.0, 1.0, 9.0]])
    assert at_lengths(usage, (2, 3), (1, 3)).tolist() == [[1, 9, 9, 9]]


@given(st.lists(st.floats(0.01, 50), min_size=1, max_size=8))
def test_whole_lengths_are_at_least_one_and_nearly_the_sum(lengths: list[float]) -> None:
    found = whole(np.array(lengths))
    assert min(found) >= 1
    assert abs(sum(found) - sum(lengths)) <= len(lengths)


@pytest.mark.parametrize(
    ("mean", "stages", "said"),
    [
        (np.zeros((4, 0)), (), "resources × slots"),
        (np.full((4, 2), np.nan), (), "finite"),
        (np.full((4, 2), -1.0), (), "finite"),
        (np.ones((4, 3)), (2, 2, 3), "rise"),
        (np.ones((4, 3)), (1, 2), "rise"),
    ],
)
def test_a_run_that_cannot_be_is_refused(mean: np.ndarray, stages: tuple[int, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Run(_SETTINGS, mean, mean, stages)
