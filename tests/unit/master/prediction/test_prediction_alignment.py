"""Runs of different length on one scale."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.prediction import Run, Settings
from master.prediction.align import alike, at_ends, in_slots_of, stages_of, stretched, whole_ends
from master.prediction.recent import forecast_of_latest
from master.prediction.runs import LEAST_PART

_SETTINGS = Settings(1, 1.0, 1)
_SERIES = st.lists(st.floats(0, 1e9), min_size=1, max_size=30)


@given(_SERIES, st.floats(0.05, 1), st.floats(0.3, 60))
def test_stretching_keeps_the_mean_and_the_bounds(values: list[float], part: float, to_slots: float) -> None:
    usage = np.array([values])
    had_slots = len(values) - 1 + part
    other = stretched(usage, had_slots, to_slots)
    lengths = np.diff(np.minimum(np.arange(other.shape[1] + 1), to_slots))
    mean = (usage[0, :-1].sum() + usage[0, -1] * part) / had_slots
    assert other.shape == (1, math.ceil(to_slots - 1e-6))
    assert other[0] @ lengths / to_slots == pytest.approx(mean, rel=1e-5, abs=1e-6)
    assert other.min() >= usage.min() - 1e-6 * (1 + usage.max())
    assert other.max() <= usage.max() * (1 + 1e-6) + 1e-6


def test_twice_as_long_has_each_value_twice() -> None:
    assert stretched(np.array([[1.0, 3.0]]), 2, 4).tolist() == [[1, 1, 3, 3]]


def test_each_stage_has_a_length_of_its_own() -> None:
    usage = np.array([[1.0, 1.0, 9.0]])
    assert at_ends(usage, (2, 3), (1, 4))[0] == pytest.approx([1, 9, 9, 9])


def test_the_part_of_a_slot_counts_as_that_part() -> None:
    usage = np.array([[1.0, 1.0, 9.0]])
    assert at_ends(usage, (2, 2.5), (1, 2)).tolist() == [[1, 9]]
    assert stretched(usage, 2.5, 1.25).tolist() == [[1, 9]]


@given(st.lists(st.floats(0.01, 50), min_size=1, max_size=8))
def test_stages_end_at_whole_slots_and_the_run_where_it_does(lengths: list[float]) -> None:
    ends = whole_ends(np.array(lengths))
    stages = stages_of(ends)
    assert all(end == int(end) for end in ends[:-1])
    assert all(before < after for before, after in pairwise((0, *stages)))
    if math.ceil(sum(lengths) - 1e-6) >= len(lengths):
        assert ends[-1] == pytest.approx(sum(lengths))
    else:
        assert ends[-1] == len(lengths)


@given(_SERIES, st.floats(0.05, 1), st.floats(0.5, 20), st.floats(0.5, 20))
def test_slots_of_another_length_keep_duration_and_total(
    values: list[float], part: float, had_s: float, to_s: float
) -> None:
    usage = np.array([values] * 4)
    run = Run(_SETTINGS, usage, usage, last_part=part)
    other = in_slots_of(run, had_s, to_s)
    longer_s = LEAST_PART * to_s  # the last slot has at least that part
    assert other.duration_slots * to_s == pytest.approx(run.duration_slots * had_s, rel=1e-4, abs=longer_s)
    assert other.total * to_s == pytest.approx(run.total * had_s, rel=1e-4, abs=1e-3 + longer_s * max(values))


@pytest.mark.parametrize("part", [0.0, -1.0, 1.01, math.nan, 1e-300])
def test_a_last_slot_that_is_no_part_of_a_slot_is_refused(part: float) -> None:
    with pytest.raises(ValueError, match="the last slot is"):
        Run(_SETTINGS, np.ones((4, 2)), np.ones((4, 2)), last_part=part)


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
    """Return stages of so many slots with 1, 2, 3, … cores; ``ends`` as its framework reported them."""
    mean = np.zeros((4, sum(lengths)))
    mean[0] = np.repeat(np.arange(1, len(lengths) + 1), lengths)
    return Run(_SETTINGS, mean, mean, tuple(np.cumsum(lengths).tolist()) if ends is None else ends)


def test_runs_with_the_same_stages_are_left_as_they_are() -> None:
    runs = [staged(4, 8), staged(6, 7)]
    assert alike(runs) == runs


def test_an_end_that_one_run_lacks_is_put_where_the_others_have_it() -> None:
    lacking = staged(4, 8, 6, 10, ends=(4, 18, 28))  # the end of the second stage is unknown
    found = alike([staged(4, 8, 6, 10), staged(5, 8, 6, 9), lacking])
    assert [run.ends for run in found] == [(4, 12, 18, 28), (5, 13, 19, 28), (4, 12, 18, 28)]
    assert forecast_of_latest([staged(4, 8, 6, 10), staged(4, 8, 6, 10), lacking]).stages == (4, 12, 18, 28)


def test_an_end_that_only_one_run_has_is_left_out() -> None:
    repeated = staged(4, 8, 6, 10, ends=(4, 7, 12, 18, 28))
    found = alike([repeated, staged(4, 8, 6, 10), staged(8, 16, 12, 20)])
    assert [run.ends for run in found] == [(4, 12, 18, 28), (4, 12, 18, 28), (8, 24, 36, 56)]


@pytest.mark.parametrize(
    "runs",
    [
        [staged(4, 8), staged(4, 8, 2)],  # the usual one is unknown
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
