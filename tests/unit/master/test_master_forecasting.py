"""The shell of forecasting: it answers in any state of the store, keeps runs, learns beside, and stops."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from structlog.testing import capture_logs

from master.core import events as e
from master.core.instructions import Predict, StoreRun
from master.forecaster import Forecaster
from master.http_documents import ApplicationProfile
from master.prediction import Forecast, Predictor, Rules, Run, Settings
from master.prediction.application import Application, ForecastSettings, History
from master.prediction.models import Neighbours
from master.profiles import Profiles
from master.store import Database, Depository, Recorded
from master.training import Train, TrainingError, in_a_process, models
from penstock import openapi
from penstock.openapi import Refused
from tests.unit.master.prediction.made_runs import grid, made

Make = Callable[..., "ForecasterBed"]


def at_once(rules: Rules, runs: Sequence[Run], stopping: threading.Event) -> Predictor:
    """Trains without SVR, which takes a second for each of six fits, and without a process."""
    predictor = Predictor(rules, [Neighbours])
    predictor.learn(runs)
    return predictor


class ForecasterBed:
    """A forecaster and its reports."""

    def __init__(self, url: str, train: Train) -> None:
        self.events: asyncio.Queue[e.Forecasted | e.ForecastsOutdated] = asyncio.Queue()
        self.forecaster = Forecaster(url, ForecastSettings(), self.events.put_nowait, train)

    async def next(self) -> e.Forecasted | e.ForecastsOutdated:
        return await asyncio.wait_for(self.events.get(), 60)

    async def forecast(self, settings: Settings, application: str = "u/app") -> e.Forecasted:
        self.forecaster.ask(Predict(application, settings))
        answer = await self.next()
        while isinstance(answer, e.ForecastsOutdated):
            answer = await self.next()
        return answer


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    made_ones: list[ForecasterBed] = []

    def one(url: str, train: Train = at_once) -> ForecasterBed:
        made_ones.append(ForecasterBed(url, train))
        return made_ones[-1]

    yield one
    for each in made_ones:
        await each.forecaster.close()


async def test_three_runs_that_are_kept_are_the_forecast_of_the_fourth(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    heard = make(str(path))
    run = made(4, 2)
    answer = await heard.forecast(run.settings)
    assert answer.by.startswith("peak reservation")
    assert answer.profile.slots == 1
    assert answer.profile.cpu_cores == (2.0,)
    assert not answer.profile.disk_bytes_per_s
    for number in range(3):
        heard.forecaster.ask(StoreRun("u/app", f"r{number}", 3.0, run))
        assert await heard.next() == e.ForecastsOutdated("u/app")
    answer = await heard.forecast(run.settings)
    assert answer.by == "mean of 3 runs, disk of the last"
    assert answer.profile.slots == run.mean.shape[1]
    assert answer.profile.stages == run.stages
    assert answer.error == 0.0


async def test_executors_of_one_run_count_once(make: Make, tmp_path: Path) -> None:
    heard = make(str(tmp_path / "kept.db"))
    run = made(4, 2)
    for _ in range(3):
        heard.forecaster.ask(StoreRun("u/app", "the same", 3.0, run))
        await heard.next()
    answer = await heard.forecast(run.settings)
    assert answer.by == "peak reservation (1 of 3 runs with these settings, too few others)"


async def test_new_settings_are_forecast_by_a_model_that_is_learnt_beside(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    database = Database(str(path))
    store = Depository(database)
    for number, run in enumerate(grid()):
        store.add("u/app", run, ended_at=float(number), slot_s=3.0)
    database.close()
    heard = make(str(path))
    asked = made(12, 2).settings
    assert (await heard.forecast(asked)).by.startswith("peak reservation")  # at once; that it learns is not waited for
    assert await heard.next() == e.ForecastsOutdated("u/app")
    answer = await heard.forecast(asked)
    assert answer.by == "neighbours"
    assert answer.profile.slots == pytest.approx(made(12, 2).mean.shape[1], rel=0.2)


async def test_the_end_of_an_executor_reads_no_former_runs_until_models_are_trained(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    runs = Depository.runs

    def counted(store: Depository, application: str, **asked: Any) -> list[Recorded]:
        read.append(application)
        return runs(store, application, **asked)

    monkeypatch.setattr(Depository, "runs", counted)
    heard = make(str(tmp_path / "kept.db"))
    for number, size in enumerate((4, 4, 8, 16)):
        assert read == []
        heard.forecaster.ask(StoreRun("u/app", f"r{number}", 3.0, made(size, 2)))
        assert await heard.next() == e.ForecastsOutdated("u/app")
    for number, size in enumerate((32, 64)):
        heard.forecaster.ask(StoreRun("u/app", f"s{number}", 3.0, made(size, 2)))
    assert [await heard.next() for _ in range(3)] == [e.ForecastsOutdated("u/app")] * 3  # the third by training
    assert set(read) == {"u/app"}


class Bare(Neighbours):
    """Cannot be learnt here."""

    name = "bare"

    def learn(self, runs: Sequence[Run]) -> None:
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")


async def test_a_model_without_its_library_is_logged_once_and_the_others_forecast(make: Make, tmp_path: Path) -> None:
    def train(rules: Rules, runs: Sequence[Run], stopping: threading.Event) -> Predictor:
        predictor = Predictor(rules, [Bare, Neighbours])
        predictor.learn(runs)
        return predictor

    path = tmp_path / "kept.db"
    database = Database(str(path))
    for number, run in enumerate(grid()):
        Depository(database).add("u/app", run, ended_at=float(number), slot_s=3.0)
    database.close()
    heard = make(str(path), train)
    with capture_logs() as logged:
        await heard.forecast(made(12, 2).settings)
        assert await heard.next() == e.ForecastsOutdated("u/app")  # by training
        heard.forecaster.ask(StoreRun("u/app", "another", 3.0, grid()[0]))
        assert [await heard.next(), await heard.next()] == [
            e.ForecastsOutdated("u/app")
        ] * 2  # it is kept; training, again
    assert (await heard.forecast(made(12, 2).settings)).by == "neighbours"
    assert [line for line in logged if line["log_level"] == "warning"] == [
        {
            "event": "forecasts are made without a model", "log_level": "warning",
            "model": "bare", "reason": "No module named 'sklearn'",
        }
    ]  # fmt: skip


def test_every_model_is_named_with_the_remedy_where_its_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.extras.is_installed", lambda module: True)
    assert models() == {"svr": "", "neighbours": ""}
    monkeypatch.setattr("penstock.extras.is_installed", lambda module: module != "sklearn")
    why = models()
    assert why["neighbours"] == ""
    assert why["svr"] == (
        f"scikit-learn is not installed; remedy: {sys.executable} -m pip install 'penstock[prediction]'"
    )


@pytest.mark.parametrize("kind", ["nowhere", "no database"])
async def test_a_store_that_cannot_be_had_leaves_the_bounds(make: Make, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "kept.db"
    if kind == "no database":
        path.write_text("This is not a database, but long enough to look at it as if it were one.\n" * 20)
    heard = make(str(path if kind == "no database" else tmp_path / "not" / "there.db"))
    run = made(4, 2)
    heard.forecaster.ask(StoreRun("u/app", "r", 3.0, run))
    answer = await heard.forecast(run.settings)
    assert answer.by == "peak reservation (the store cannot be had)"
    assert answer.profile.cpu_cores == (2.0,)


async def test_a_store_that_fails_later_leaves_the_bounds_too(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    heard = make(str(path))
    await heard.forecast(made(4, 2).settings)
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE profile_runs")
    connection.close()
    answer = await heard.forecast(made(4, 2).settings, "u/other")
    assert answer.by == "peak reservation (the store cannot be had)"


async def test_it_stops_while_a_process_learns(make: Make, tmp_path: Path) -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    ended: list[Predictor | None] = []

    def watched(rules: Rules, runs: Sequence[Run], stopping: threading.Event) -> Predictor | None:
        loop.call_soon_threadsafe(begun.set)
        ended.append(in_a_process(rules, runs, stopping))
        return ended[0]

    heard = make(str(tmp_path / "kept.db"), watched)
    for number, run in enumerate(grid()[::2]):
        heard.forecaster.ask(StoreRun("u/app", str(number), 3.0, run))
    await asyncio.wait_for(begun.wait(), 60)
    await asyncio.wait_for(heard.forecaster.close(), 60)
    assert ended == [None]
    heard.forecaster.ask(Predict("u/app", made(4, 2).settings))  # nothing happens


async def test_a_process_gets_the_models_learnt_here() -> None:
    runs = [made(size, 2) for size in (4, 8, 12, 16)]
    learnt = await asyncio.to_thread(in_a_process, Rules(), runs, threading.Event(), [Neighbours])
    here = at_once(Rules(), runs, threading.Event())
    assert learnt is not None
    assert learnt.errors == here.errors
    asked = made(10, 2).settings
    assert np.array_equal(learnt.predict(asked, runs).mean, here.predict(asked, runs).mean)


async def test_a_model_that_cannot_be_learnt_is_one_line() -> None:
    no_runs: Any = ["no run"]
    with pytest.raises(TrainingError, match="training ended with status 1: "):
        await asyncio.to_thread(in_a_process, Rules(), no_runs, threading.Event())


class Endless(Neighbours):
    """Never learns."""

    def learn(self, runs: Sequence[Run]) -> None:
        while True:
            pass


async def test_training_that_takes_too_long_is_given_up() -> None:
    runs = [made(size, 2) for size in (4, 8, 12, 16)]
    with pytest.raises(TrainingError, match="training took more than 2 s of a processor"):
        await asyncio.to_thread(in_a_process, Rules(), runs, threading.Event(), [Endless], 2)


async def test_runs_in_longer_slots_are_brought_onto_one_scale(make: Make, tmp_path: Path) -> None:
    heard = make(str(tmp_path / "kept.db"))
    settings = Settings(1, 1.0, 10**9)
    short = Run(settings, np.full((4, 8), 0.5), np.full((4, 8), 1.0))
    long = Run(settings, np.full((4, 4), 0.5), np.full((4, 4), 1.0))
    for name, slot_s, run in (("a", 3.0, short), ("b", 6.0, long), ("c", 3.0, short)):
        heard.forecaster.ask(StoreRun("u/app", name, slot_s, run))
        await heard.next()
    answer = await heard.forecast(settings)
    assert (answer.profile.slot_s, answer.profile.slots) == (3.0, 8)
    assert answer.profile.cpu_cores == (1.0,) * 8  # 5 % more than the peak, but not more than the bound


async def test_a_slot_that_was_not_measured_is_null_on_the_page_and_never_in_a_forecast(
    make: Make, tmp_path: Path
) -> None:
    heard = make(str(tmp_path / "kept.db"))
    mean = np.array([[0.5, np.nan, 0.5, 0.5]] * 4)
    for name in "abc":
        heard.forecaster.ask(StoreRun("u/app", name, 3.0, Run(Settings(1, 1.0, 10**9), mean, 2 * mean)))
        await heard.next()
    _, route = Profiles(heard.forecaster).routes()
    names = {"user": "u", "application": "app"}
    response = await route.handler(make_mocked_request("GET", "/profiles/u/app", match_info=names))
    assert isinstance(response, web.Response) and isinstance(response.body, bytes)
    page = msgspec.json.decode(response.body, type=ApplicationProfile)
    assert {tuple(row) for run in page.runs for row in run.mean} == {(0.5, None, 0.5, 0.5)}
    assert {tuple(row) for run in page.runs for row in run.peak} == {(1.0, None, 1.0, 1.0)}
    (forecast,) = page.forecasts
    assert (forecast.by, forecast.mean[0]) == ("mean of 3 runs, disk of the last", [0.5] * 4)
    assert (await heard.forecast(Settings(1, 1.0, 10**9))).profile.cpu_cores == (1.0,) * 4


async def test_the_latest_runs_are_shown_and_made_json_beside_the_loop(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = make(str(tmp_path / "kept.db"))
    for number in range(25):
        heard.forecaster.ask(StoreRun("u/app", f"r{number}", 3.0, made(4 + number // 5, 2)))
    encoded_in: list[str] = []
    encode = openapi.json

    def watched(said: object) -> web.Response:
        encoded_in.append(threading.current_thread().name)
        return encode(said)

    monkeypatch.setattr(openapi, "json", watched)
    _, route = Profiles(heard.forecaster).routes()
    names = {"user": "u", "application": "app"}
    response = await route.handler(make_mocked_request("GET", "/profiles/u/app", match_info=names))
    assert isinstance(response, web.Response) and isinstance(response.body, bytes)
    page = msgspec.json.decode(response.body, type=ApplicationProfile)
    assert [run.run for run in page.runs] == [f"r{number}" for number in range(5, 25)]
    assert len(page.forecasts) == 5, "of settings with runs that are not shown, too"
    assert [one.run for one in page.history] == [f"r{number}" for number in range(20, 25)]
    assert encoded_in == ["forecasts_0"]


async def test_a_forecast_made_before_the_training_arrives_before_it(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trains, forecasts, forecast = asyncio.Event(), threading.Event(), Application.forecast
    loop = asyncio.get_running_loop()

    def train(rules: Rules, runs: Sequence[Run], stopping: threading.Event) -> Predictor:
        loop.call_soon_threadsafe(trains.set)
        forecasts.wait(60)
        return at_once(rules, runs, stopping)

    def slow(known: Application, settings: Settings, history: History) -> Forecast:
        made_before = forecast(known, settings, history)
        forecasts.set()
        vars(heard.forecaster)["_models"].submit(int).result(60)  # until the training is over
        return made_before

    heard = make(str(tmp_path / "kept.db"), train)
    for number, size in enumerate((4, 8, 16, 32)):
        heard.forecaster.ask(StoreRun("u/app", str(number), 3.0, made(size, 2)))
        assert await heard.next() == e.ForecastsOutdated("u/app")
    await asyncio.wait_for(trains.wait(), 60)
    monkeypatch.setattr(Application, "forecast", slow)
    heard.forecaster.ask(Predict("u/app", made(12, 2).settings))
    said = await heard.next()
    assert isinstance(said, e.Forecasted) and said.by.startswith("peak reservation")
    assert await heard.next() == e.ForecastsOutdated("u/app")


async def test_reading_profiles_keeps_the_trained_models(make: Make, tmp_path: Path) -> None:
    heard = make(str(tmp_path / "kept.db"))
    for number, run in enumerate(grid()[::2]):
        heard.forecaster.ask(StoreRun("u/app", str(number), 3.0, run))
    asked = made(12, 2).settings
    while (await heard.forecast(asked)).by != "neighbours":
        await heard.next()
    _, route = Profiles(heard.forecaster).routes()
    for number in range(300):
        names = {"user": "u", "application": str(number)}
        with pytest.raises(Refused, match="no runs of"):
            await route.handler(make_mocked_request("GET", f"/profiles/u/{number}", match_info=names))
    assert (await heard.forecast(asked)).by == "neighbours"


async def test_the_pages_read_beside_the_loop(make: Make, tmp_path: Path) -> None:
    heard = make(str(tmp_path / "kept.db"))
    assert len(Profiles(heard.forecaster).routes()) == 2
    assert await heard.forecaster.read(lambda store, known: store.applications()) == {}
