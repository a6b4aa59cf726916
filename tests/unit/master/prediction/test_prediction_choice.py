"""The prediction that a run gets, and its quality on runs with a demand that follows from their settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from master.prediction import Forecast, Predictor, Rules, Run, Settings, errors_of
from master.prediction.models import Model, Neighbours, Svr
from master.prediction.recent import forecast_of_latest
from tests.unit.master.prediction.made_runs import GB, grid, made


class _Wrong(Neighbours):
    """Forecasts ten times of everything."""

    name = "wrong"

    def predict(self, settings: Settings) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
        mean, peak, stages = super().predict(settings)
        return 10 * mean, 10 * peak, stages


class _WithoutItsLibrary(Neighbours):
    """Cannot be learnt here."""

    name = "bare"

    def learn(self, runs: Sequence[Run]) -> None:
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")


def test_the_same_settings_get_the_mean_of_the_latest_runs() -> None:
    runs = [made(30, 2), *(made(8, 2, 0.1, seed) for seed in range(5))]
    said = Predictor().predict(runs[-1].settings, runs)
    assert said.by == "mean of 3 runs, network and memory of the last"  # that missed those two least
    expected = np.mean([run.mean for run in runs[-3:]], axis=0)
    expected[2:] = runs[-1].mean[2:]
    assert np.allclose(said.mean, expected)
    assert (said.peak >= said.mean).all()
    assert (said.low <= said.mean).all()
    assert (said.mean <= said.high).all()
    assert 0 < said.error < 0.2


def test_runs_of_different_length_are_aligned_by_stage() -> None:
    short, long = np.ones((4, 6)), np.ones((4, 10))
    short[0, 2:4], long[0, 2:6] = 8, 8
    settings = Settings(GB, 8, GB)
    runs = [Run(settings, short, short, (2, 4, 6)), Run(settings, long, long, (2, 6, 10))]
    said = forecast_of_latest(runs)
    assert said.stages == (2, 5, 8)
    assert said.mean[0].tolist() == [1, 1, 8, 8, 8, 1, 1, 1]  # not smeared over its neighbours
    assert said.stages[-1] == said.slots


def test_runs_with_another_number_of_stages_are_taken_as_a_whole() -> None:
    one, other = made(8, 2), replace(made(8, 2), stages=())
    assert forecast_of_latest([one, other]).stages == (one.mean.shape[1],)


def test_a_run_of_the_same_lies_within_the_band() -> None:
    runs = [made(16, 2, 0.1, seed) for seed in range(9)]
    inside = []
    for left_out in range(4, 9):
        said = forecast_of_latest(runs[:left_out])
        truth = runs[left_out].mean
        inside.append(((said.low <= truth) & (truth <= said.high))[said.mean > 0].mean())
    assert np.mean(inside) > 0.8


def test_too_few_runs_get_their_bounds() -> None:
    runs = [made(8, 2)]
    said = Predictor().predict(runs[0].settings, runs)
    assert said.by.startswith("peak reservation (1 of 3 runs")
    assert set(said.mean[0]) == {2.0}
    assert set(said.mean[3]) == {8.0 * GB}
    assert set(said.mean[1]) == {runs[0].peak[1].max()}  # unbounded: the largest known value
    assert said.slots == runs[0].mean.shape[1]
    assert math.isnan(said.error)


def test_nothing_known_is_one_slot_of_the_bounds() -> None:
    said = Predictor().predict(Settings(GB, 3, GB), [])
    assert said.mean.tolist() == [[3.0], [0.0], [0.0], [float(GB)]]


@pytest.mark.parametrize(("model", "most"), [(Svr, 0.1), (Neighbours, 0.35)])
def test_settings_without_any_run(model: type[Model], most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Svr, "GRID", {"C": [10.0, 100.0], "gamma": [0.1, 0.5], "epsilon": [0.01]})  # a third of it
    runs = grid(noise=0.1)
    predictor = Predictor(Rules(error=1.0), [model])
    predictor.learn(runs)
    truth = made(24, 3)
    said = predictor.predict(truth.settings, runs)
    assert said.by == model.name
    found = errors_of(said, truth)
    assert found.total["cpu"] < most
    assert found.total["memory"] < most
    assert found.length < most
    assert len(said.stages) == 2


def test_the_model_that_misses_held_back_settings_least_is_chosen() -> None:
    runs = grid()
    for models in ([Neighbours, _Wrong], [_Wrong, Neighbours]):
        predictor = Predictor(Rules(error=1.0), models)
        predictor.learn(runs)
        assert predictor.predict(made(24, 3).settings, runs).by == "neighbours"
        assert predictor.errors["wrong"] > predictor.errors["neighbours"]


def test_a_model_that_misses_by_too_much_is_not_believed() -> None:
    runs = grid()
    predictor = Predictor(Rules(error=0.3), [_Wrong])
    predictor.learn(runs)
    said = predictor.predict(made(24, 3).settings, runs)
    assert said.by.startswith("peak reservation (wrong missed held-back settings by")


def test_a_model_without_its_library_takes_no_part() -> None:
    runs = grid()
    for models in ([_WithoutItsLibrary, Neighbours], [Neighbours, _WithoutItsLibrary]):
        predictor = Predictor(Rules(error=1.0), models)
        predictor.learn(runs)
        assert predictor.predict(made(24, 3).settings, runs).by == "neighbours"
        assert set(predictor.errors) == {"neighbours"}
        assert predictor.unavailable == {"bare": "No module named 'sklearn'"}


def test_a_reservation_names_the_model_that_is_missing() -> None:
    runs = grid()
    predictor = Predictor(Rules(error=0.3), [_WithoutItsLibrary, _Wrong])
    predictor.learn(runs)
    assert "; bare is not available: No module named 'sklearn'" in predictor.predict(made(24, 3).settings, runs).by


def test_without_any_model_bounds_are_reserved() -> None:
    runs = grid()
    predictor = Predictor(Rules(), [_WithoutItsLibrary])
    predictor.learn(runs)
    assert predictor.predict(made(24, 3).settings, runs).reservation


def test_a_model_needs_several_settings() -> None:
    runs = [made(8, 2, 0.1, seed) for seed in range(20)]
    predictor = Predictor()
    predictor.learn(runs)
    assert predictor.errors == {}
    assert predictor.predict(made(24, 3).settings, runs).by.startswith("peak reservation (0 of 3 runs")


def test_resources_stay_together_with_neighbours() -> None:
    """Where the processor works the disk rests, in every run; so it is forecast."""
    runs = grid(noise=0.1)
    model = Neighbours()
    model.learn(runs)
    mean, _, _ = model.predict(Settings(24 * GB, 3, 8 * GB))
    said = Forecast(mean, mean, mean, mean, (mean.shape[1],), "neighbours", math.nan)
    busy = said.mean[0] > 1.5
    assert said.mean[1][busy].max(initial=0) < 0.05 * said.mean[1].max()
