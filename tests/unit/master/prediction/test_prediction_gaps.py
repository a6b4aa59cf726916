"""A run with slots that were not measured: they are time, and no use; no forecast takes them for nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.prediction import Forecast, Predictor, ReservedSlots, Run, Settings, errors_of, profile_of, reservation
from master.prediction.align import in_slots_of, stretched
from master.prediction.models import Neighbours
from master.prediction.recent import forecast_of_latest, merged
from tests.unit.master.prediction.made_runs import grid, made

NAN = math.nan
SETTINGS = Settings(1, 2.0, 8)


def run(*slots: float, stages: tuple[int, ...] = ()) -> Run:
    """Every resource uses the same; NaN is a slot that was not measured."""
    mean = np.array([slots] * 4)
    return Run(SETTINGS, mean, 2 * mean, stages)


def with_gaps(whole: Run, *gaps: int) -> Run:
    mean, peak = whole.mean.copy(), whole.peak.copy()
    mean[:, gaps], peak[:, gaps] = NAN, NAN
    return Run(whole.settings, mean, peak, whole.stages)


def finite(forecast: Forecast) -> bool:
    return all(np.isfinite(each).all() for each in (forecast.mean, forecast.peak, forecast.low, forecast.high))


def test_a_slot_is_measured_for_every_resource_or_for_none_and_one_at_least_is() -> None:
    half = np.ones((4, 2))
    half[0, 1] = NAN
    for mean, peak in ((half, half), (np.ones((4, 2)), half), (np.full((4, 2), NAN), np.full((4, 2), NAN))):
        with pytest.raises(ValueError, match=r"measured|finite"):
            Run(SETTINGS, mean, peak)


def test_a_mean_of_runs_leaves_a_gap_out() -> None:
    said = forecast_of_latest([run(4, 4, 4, 4), run(2, NAN, 2, 2), run(3, 3, NAN, 3)])
    assert said.mean[0].tolist() == [3, 3.5, 3, 3]
    assert said.peak[0].tolist() == [8, 8, 8, 8]
    assert said.slots == 4 and finite(said) and (said.low <= said.mean).all() and (said.mean <= said.high).all()


def test_a_slot_that_no_run_measured_is_forecast_as_those_beside_it() -> None:
    said = forecast_of_latest([run(NAN, 1, NAN, NAN, 4, NAN)] * 3)
    assert said.mean[0].tolist() == [1, 1, 2, 3, 4, 4]
    assert said.peak[0].tolist() == [2, 2, 4, 6, 8, 8]
    assert finite(said) and said.error == 0.0
    profile = profile_of(said, SETTINGS, 3.0, ReservedSlots(headroom=0.0))
    assert min(profile.cpu_cores) > 1


def test_executors_of_a_run_have_a_gap_where_none_was_measured() -> None:
    both = merged([run(1, NAN, NAN, 1), run(3, 3, NAN, 3)])
    assert both.mean[0].tolist() == pytest.approx([2, 3, NAN, 2], nan_ok=True)
    assert both.peak[0].tolist() == pytest.approx([6, 6, NAN, 6], nan_ok=True)


def test_the_error_of_a_forecast_is_of_the_slots_that_were_measured() -> None:
    said = forecast_of_latest([run(2, 2, 2, 2)])
    errors = errors_of(said, run(2, NAN, NAN, 2))
    assert (errors.total["cpu"], errors.shape["cpu"], errors.peak["cpu"], errors.length) == (0, 0, 0, 0)
    assert errors_of(said, run(1, NAN, NAN, 1)).total["cpu"] == 1.0


def test_longer_slots_have_the_mean_of_the_measurements_and_shorter_ones_the_gap_at_its_time() -> None:
    one = run(1, NAN, NAN, NAN, 5, 7, stages=(3, 6))
    longer, shorter = in_slots_of(one, 3.0, 6.0), in_slots_of(one, 3.0, 1.5)
    assert longer.mean[0].tolist() == pytest.approx([1, NAN, 6], nan_ok=True)
    assert longer.peak[0].tolist() == pytest.approx([2, NAN, 14], nan_ok=True)
    assert longer.stages == (2, 3)
    assert shorter.mean[0].tolist() == pytest.approx([1, 1, *[NAN] * 6, 5, 5, 7, 7], nan_ok=True)


def test_stages_of_runs_with_gaps_are_still_distinguished() -> None:
    usual = [run(1, 1, 8, 8, stages=(2, 4)) for _ in range(3)]
    said = forecast_of_latest([*usual[:2], run(1, 1, NAN, 8)])
    assert said.stages == (2, 4)
    assert said.mean[0].tolist() == [1, 1, 8, 8]


def test_bounds_are_reserved_at_the_highest_that_was_measured() -> None:
    said = reservation(Settings(1, 0.0, 0), [run(1, NAN, 3)], why="few")
    assert said.slots == 3 and set(said.peak.flatten()) == {6.0}


def test_a_model_learns_from_runs_with_gaps_nearly_as_much_as_without() -> None:
    settings = made(12, 2).settings
    forecasts = []
    for runs in (grid(), [with_gaps(each, 1, each.mean.shape[1] - 2) for each in grid()]):
        predictor = Predictor(models=[Neighbours])
        predictor.learn(runs)
        forecasts.append(predictor.predict(settings, runs))
    without, gapped = forecasts
    assert gapped.by == "neighbours" and finite(gapped)
    assert gapped.mean.sum(axis=1) == pytest.approx(without.mean.sum(axis=1), rel=0.02)


@given(st.lists(st.one_of(st.just(NAN), st.floats(0, 100)), min_size=1, max_size=30), st.integers(1, 60))
def test_stretching_neither_spreads_nor_fills_gaps(values: list[float], slots: int) -> None:
    known = [value for value in values if not math.isnan(value)]
    other = stretched(np.array([values]), len(values), slots)[0]
    assert len(other) == slots
    if not known:
        assert np.isnan(other).all()
        return
    assert np.nanmin(other) >= min(known) - 1e-6 and np.nanmax(other) <= max(known) + 1e-6
    if slots % len(values) == 0:
        each = slots // len(values)
        assert np.isnan(other).tolist() == [math.isnan(value) for value in values for _ in range(each)]
