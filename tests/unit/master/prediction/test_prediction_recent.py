"""The same settings again: each resource is forecast by the candidate that missed former runs least."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.prediction import Predictor, Rules, Run, Settings, errors_of
from master.prediction.recent import forecast_of_latest, walk_forward
from master.prediction.runs import LEAST_PART, RESOURCES

_SETTINGS = Settings(1, 1.0, 1)


@st.composite
def runs_of(draw: st.DrawFn) -> Run:
    """A run of some slots and stages that ends within its last slot."""
    slots, last_part = draw(st.integers(1, 12)), draw(st.floats(0.05, 1) | st.just(LEAST_PART))
    row = st.lists(st.floats(0, 1e6), min_size=slots, max_size=slots)
    mean = np.array([draw(row) for _ in RESOURCES])
    ends = sorted(draw(st.sets(st.integers(1, slots - 1)))) if slots > 1 else []
    stages = (*ends, slots) if ends else ()
    return Run(_SETTINGS, mean, 1.5 * mean, stages, last_part)


def flat(*amounts: float, slots: int = 2, last_part: float = 1.0) -> list[Run]:
    """Runs that use so much of every resource, one after the other."""
    return [
        Run(_SETTINGS, np.full((4, slots), amount), np.full((4, slots), amount), last_part=last_part)
        for amount in amounts
    ]


@given(runs_of(), st.integers(1, 12))
def test_the_forecast_of_identical_runs_is_the_run(run: Run, times: int) -> None:
    said = forecast_of_latest([run] * times)
    assert said.mean == pytest.approx(run.mean)
    assert said.peak == pytest.approx(run.peak)
    assert said.total == pytest.approx(run.total)
    assert (said.last_part, said.stages) == (pytest.approx(run.last_part), run.stages or (run.mean.shape[1],))
    assert errors_of(said, run).judged == pytest.approx(0.0, abs=1e-9)


@given(st.lists(runs_of(), min_size=1, max_size=6))
def test_a_forecast_takes_no_longer_than_the_longest_and_no_shorter_than_the_shortest(runs: list[Run]) -> None:
    said = forecast_of_latest(runs)
    durations = [run.duration_slots for run in runs[-3:]]
    assert min(durations) - 1e-5 <= said.duration_slots <= max(durations) + 1e-5
    assert said.slots == said.stages[-1]


@given(st.lists(runs_of(), min_size=2, max_size=6), st.data())
def test_no_run_is_judged_by_a_forecast_that_has_seen_it_or_a_later_one(runs: list[Run], data: st.DataObject) -> None:
    number = data.draw(st.integers(1, len(runs) - 1))
    others = data.draw(st.lists(runs_of(), min_size=len(runs) - number, max_size=len(runs) - number))
    said, _ = list(walk_forward(runs))[number - 1]
    again, run = list(walk_forward([*runs[:number], *others]))[number - 1]
    assert run is others[0]
    for name, forecast in said.items():
        assert np.array_equal(forecast.mean, again[name].mean)
        assert np.array_equal(forecast.peak, again[name].peak)
        assert forecast.duration_slots == again[name].duration_slots


def test_two_runs_judge_nothing_so_disk_is_as_in_the_last_and_the_rest_the_mean() -> None:
    said = Predictor(Rules(runs=2)).predict(_SETTINGS, flat(1.0, 3.0))
    assert said.mean[:, 0].tolist() == [2.0, 3.0, 2.0, 2.0]
    assert said.by == "mean of 2 runs, disk of the last"


def test_usage_that_grows_from_run_to_run_is_as_in_the_last() -> None:
    said = forecast_of_latest(flat(1.0, 2.0, 4.0, 8.0))
    assert said.mean[:, 0].tolist() == [8.0] * 4
    assert said.by == "the last run"


def test_usage_that_swings_is_the_mean_of_disk_too() -> None:
    said = forecast_of_latest(flat(1.0, 3.0, 1.0, 3.0, 1.0))
    assert said.mean[:, 0] == pytest.approx([5 / 3] * 4)
    assert said.by == "mean of 3 runs"


def test_each_resource_has_a_candidate_of_its_own() -> None:
    runs = flat(1.0, 2.0, 4.0, 8.0)
    for run, memory in zip(runs, (1.0, 3.0, 1.0, 3.0), strict=True):
        run.mean[3] = run.peak[3] = memory
    said = forecast_of_latest(runs)
    assert said.mean[:, 0] == pytest.approx([8.0, 8.0, 8.0, 7 / 3])
    assert said.by == "mean of 3 runs, cpu and disk and network of the last"


def test_one_run_that_used_next_to_nothing_decides_no_more_than_another() -> None:
    """The last run misses the third run a thousandfold; the mean misses each of the later ones by a half or more."""
    said = forecast_of_latest(flat(1.0, 1.0, 0.001, 8.0, 8.0, 8.0))
    assert said.by == "the last run"


def test_the_error_of_a_resource_is_that_of_the_candidate_which_forecasts_it() -> None:
    said = forecast_of_latest(flat(1.0, 2.0, 4.0, 8.0))
    assert said.errors == pytest.approx(dict.fromkeys(RESOURCES, 0.5))  # each run was twice the one before it


def test_runs_that_end_within_a_slot_are_forecast_to_end_within_a_slot() -> None:
    said = forecast_of_latest([*flat(1.0, last_part=0.25), *flat(1.0, last_part=0.75)])
    assert (said.slots, said.duration_slots) == (2, 1.5)
    assert said.total == pytest.approx([1.5] * 4)


@given(st.lists(runs_of(), min_size=1, max_size=5))
def test_the_mean_lies_in_its_band_and_below_its_peak(runs: list[Run]) -> None:
    said = forecast_of_latest(runs)
    assert (said.low <= said.mean).all() and (said.mean <= said.high).all()
    assert (said.mean <= said.peak * (1 + 1e-9) + 1e-6).all()


def test_a_gap_of_the_last_run_is_taken_from_the_slots_beside_it_and_stays_in_the_band() -> None:
    runs = [Run(_SETTINGS, np.array([[1.0, 1.0, 1.0]] * 4), np.array([[1.0, 1.0, 1.0]] * 4)) for _ in range(2)]
    gapped = np.array([[3.0, np.nan, 5.0]] * 4)
    said = forecast_of_latest([*runs, Run(_SETTINGS, gapped, gapped)])
    assert said.mean[1].tolist() == [3.0, 4.0, 5.0]  # of the disk, which both candidates missed alike
    assert (said.low <= said.mean).all() and (said.mean <= said.high).all()
