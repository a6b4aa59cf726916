"""The promised part of a forecast, and runs on another scale of time."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.prediction import ReservedSlots, Run, Settings, errors_of, profile_of, reservation
from master.prediction.align import in_slots_of
from master.prediction.models import Svr
from master.prediction.recent import forecast_of_latest
from penstock.model import Sizing
from tests.unit.master.prediction.made_runs import GB, made

PLAIN = ReservedSlots(headroom=0.0)


def test_a_forecast_promises_each_slots_peak_and_a_bit_more_within_the_bounds() -> None:
    run = made(4, 2)
    forecast = forecast_of_latest([run] * 3)
    profile = profile_of(forecast, run.settings, 3.0, ReservedSlots())
    assert profile.slots == run.mean.shape[1]
    assert profile.stages == run.stages
    assert profile.cpu_cores[0] == 2.0  # 2.4 were used at most: no more than the bound is promised
    assert profile.cpu_cores[-1] == pytest.approx(1.05 * 0.3)
    assert profile.memory_bytes[0] == pytest.approx(1.05 * 1.2 * GB, rel=1e-6)
    assert profile.disk_bytes_per_s[0] == 1, "nothing was written, so nothing is kept from others"
    assert profile.network_bytes_per_s[-1] == 1


def test_the_mean_may_be_promised_instead() -> None:
    run = made(4, 2)
    profile = profile_of(forecast_of_latest([run] * 3), run.settings, 3.0, ReservedSlots("mean", 0.0))
    assert profile.cpu_cores[-1] == 0.25


def test_an_executor_that_shares_idle_capacity_is_promised_means() -> None:
    run = made(4, 2)
    forecast = forecast_of_latest([run] * 3)
    hard, shared = (profile_of(forecast, run.settings, 3.0, PLAIN, sizing) for sizing in Sizing)
    assert hard.cpu_cores[-1] == pytest.approx(0.3)
    assert shared.cpu_cores[-1] == pytest.approx(0.25)
    asked = [profile_of(forecast, run.settings, 3.0, ReservedSlots("peak", 0.0), sizing) for sizing in Sizing]
    assert asked == [hard, hard]


def test_demand_that_was_missed_on_held_back_runs_is_not_promised() -> None:
    run = made(4, 2)
    forecast = replace(forecast_of_latest([run] * 3), errors={"cpu": 0.1, "disk": 0.9, "network": 0.0, "memory": 0.5})
    profile = profile_of(forecast, run.settings, 3.0, PLAIN)
    assert profile.disk_bytes_per_s == ()
    assert profile.memory_bytes == (8 * GB,)  # its bound, all the time
    assert len(profile.cpu_cores) == profile.slots == run.mean.shape[1]


def test_the_errors_of_each_resource_come_from_the_runs_that_were_held_back() -> None:
    runs = [made(4, 2) for _ in range(3)]
    third = runs[2].mean.copy()
    third[1] *= 4
    runs[2] = Run(runs[2].settings, third, 1.2 * np.maximum(third, runs[2].peak), runs[2].stages)
    forecast = forecast_of_latest(runs)
    assert forecast.errors["cpu"] == pytest.approx(0.0)
    assert forecast.errors["disk"] == pytest.approx((0.0 + 0.75) / 2)  # of the second run and of the third
    profile = profile_of(forecast, runs[0].settings, 3.0, PLAIN)
    assert not profile.disk_bytes_per_s


@pytest.mark.parametrize(
    ("settings", "cores", "memory"),
    [(Settings(0, 2.0, GB), (2.0,), (GB,)), (Settings(0, 0.0, 0), (1.0,), ()), (Settings(0, 0.0, GB), (1.0,), (GB,))],
)
def test_where_nothing_is_known_bounds_are_reserved_in_one_slot(
    settings: Settings, cores: tuple[float, ...], memory: tuple[int, ...]
) -> None:
    profile = profile_of(reservation(settings, [], why="a test"), settings, 3.0, ReservedSlots())
    assert (profile.slots, profile.cpu_cores, profile.memory_bytes) == (1, cores, memory)
    assert (profile.disk_bytes_per_s, profile.network_bytes_per_s, profile.stages) == ((), (), ())


def test_without_bounds_the_highest_that_is_known_is_reserved() -> None:
    asked = Settings(9, 0.0, 0)
    profile = profile_of(reservation(asked, [made(4, 2)], why="a test"), asked, 3.0, ReservedSlots())
    assert profile.slots == 1
    assert profile.cpu_cores == (pytest.approx(2.4),)


def test_an_svr_model_can_be_sent_to_another_process() -> None:
    model = Svr()
    model.learn([made(size, 2) for size in (4, 8, 16)])
    again = pickle.loads(pickle.dumps(model))
    asked = made(10, 2).settings
    assert all(
        np.array_equal(one, other) for one, other in zip(model.predict(asked), again.predict(asked), strict=True)
    )


@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=30), st.sampled_from([0.5, 1.0, 2.0, 3.0, 4.5, 7.0]),
    st.sampled_from([0.5, 1.0, 3.0, 5.0]),
)  # fmt: skip
def test_on_another_scale_totals_and_peaks_are_unchanged(values: list[float], had_s: float, to_s: float) -> None:
    mean = np.array([values] * 4)
    run = Run(Settings(1, 1, 1), mean, 2 * mean)
    other = in_slots_of(run, had_s, to_s)
    whole_s = had_s * len(values)
    lengths = np.full(other.mean.shape[1], to_s)
    lengths[-1] = whole_s - to_s * (len(lengths) - 1)
    assert 0 < lengths[-1] <= to_s + 1e-9
    assert np.allclose((other.mean * lengths).sum(axis=1), mean.sum(axis=1) * had_s)
    assert np.allclose(other.peak.max(axis=1), run.peak.max(axis=1))
    assert (other.peak >= other.mean - 1e-9).all()


def test_ends_of_stages_move_along_or_are_left_out_where_slots_are_too_long() -> None:
    run = made(4, 2)  # stages end after 8 and 16 slots
    assert in_slots_of(run, 3.0, 6.0).stages == (4, 8)
    assert in_slots_of(run, 3.0, 1.5).stages == (16, 32)
    assert in_slots_of(run, 3.0, 60.0).stages == ()
    assert errors_of(forecast_of_latest([in_slots_of(run, 3.0, 1.5)]), in_slots_of(run, 3.0, 1.5)).judged == 0.0
