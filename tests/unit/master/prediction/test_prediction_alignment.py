"""Runs of different length on one scale."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.prediction import Run, Settings
from master.prediction.align import alike, at_lengths, stretched, whole
from master.prediction.recent import mean_of_latest

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


def staged(*lengths: int, ends: tuple[int, ...] | None = None) -> Run:
    """Stages of so many slots with 1, 2, 3, … cores; ``ends`` as its framework told them."""
    mean = np.zeros((4, sum(lengths)))
    mean[0] = np.repeat(np.arange(1, len(lengths) + 1), lengths)
    return Run(_SETTINGS, mean, mean, tuple(np.cumsum(lengths).tolist()) if ends is None else ends)


def test_runs_with_the_same_stages_are_left_as_they_are() -> None:
    runs = [staged(4, 8), staged(6, 7)]
    assert alike(runs) == runs


def test_an_end_that_one_run_lacks_is_put_where_the_others_have_it() -> None:
    lacking = staged(4, 8, 6, 10, ends=(4, 18, 28))  # nobody told that the second ended
    found = alike([staged(4, 8, 6, 10), staged(5, 8, 6, 9), lacking])
    assert [run.ends for run in found] == [(4, 12, 18, 28), (5, 13, 19, 28), (4, 12, 18, 28)]
    assert mean_of_latest([staged(4, 8, 6, 10), staged(4, 8, 6, 10), lacking]).stages == (4, 12, 18, 28)


def test_an_end_that_only_one_run_has_is_left_out() -> None:
    repeated = staged(4, 8, 6, 10, ends=(4, 7, 12, 18, 28))
    found = alike([repeated, staged(4, 8, 6, 10), staged(8, 16, 12, 20)])
    assert [run.ends for run in found] == [(4, 12, 18, 28), (4, 12, 18, 28), (8, 24, 36, 56)]


@pytest.mark.parametrize(
    "runs",
    [
        [staged(4, 8), staged(4, 8, 2)],  # nobody knows which is the usual one
        [staged(4, 8), staged(4, 8, 2), staged(1, 1, 1, 1)],
        [staged(*[3] * 8), staged(*[3] * 8), staged(*[3] * 4)],  # half of them: not the same work
        [staged(3, 3, 3), staged(3, 3, 3), Run(_SETTINGS, np.ones((4, 2)), np.ones((4, 2)), (1, 2))],  # too short
    ],
)
def test_runs_that_have_not_the_same_stages_are_one_stage_each(runs: list[Run]) -> None:
    assert [run.stages for run in alike(runs)] == [()] * len(runs)


@given(
    st.lists(st.integers(2, 9), min_size=4, max_size=12), st.lists(st.integers(1, 3), min_size=2, max_size=4),
    st.data(),
)  # fmt: skip
def test_whichever_end_is_missing_the_usage_of_a_stage_is_that_of_the_others(
    lengths: list[int], factors: list[int], data: st.DataObject
) -> None:
    runs = [staged(*(factor * length for length in lengths)) for factor in factors]
    missing = data.draw(st.integers(0, len(lengths) - 2))
    whole_run = staged(*lengths)
    ends = whole_run.ends[:missing] + whole_run.ends[missing + 1 :]
    found = alike([*runs, staged(*lengths, ends=ends)])
    assert found[-1].ends == whole_run.ends
