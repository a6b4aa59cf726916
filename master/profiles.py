"""``GET /profiles`` and ``GET /profiles/USER/APPLICATION``: the use of executors, and forecasts of the next ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from aiohttp import web

from master import http_documents as documents
from master.forecaster import Forecaster
from master.prediction import Forecast, Predictor, Run, Settings
from master.prediction.application import Application, History
from master.prediction.runs import Floats
from master.store import Depository, StoreError
from penstock import openapi
from penstock.openapi import Operation, Refused

#: The rows of usage, and their units.
RESOURCES = ("cores", "disk_bytes_per_s", "network_bytes_per_s", "memory_bytes")
#: Number of latest runs that are shown; 500 runs of 600 slots would be 30 MB.
_SHOWN = 20
#: Number of latest runs for which the earlier forecast is shown.
_LATEST = 5
#: Largest number of settings with a forecast, those of the latest runs.
_SETTINGS = 20

Known = Callable[[str], Application]


class Profiles:
    """Serves profiles; reads in the thread that has the store, and decides nothing."""

    def __init__(self, forecaster: Forecaster) -> None:
        self._forecaster = forecaster

    def routes(self) -> list[Operation]:
        """Return the operations for the master's HTTP address."""
        away = {503: "The store is not available."}
        return [
            Operation(
                path="/profiles",
                handler=self._list,
                summary="Applications that ran as executors.",
                page="run-executors.md",
                answer=list[documents.ProfileEntry],
                faults=away,
            ),
            Operation(
                path="/profiles/{user}/{application:.+}",
                handler=self._one,
                summary="An application's use in former runs, and the forecast of the next.",
                parameters={"user": str, "application": str},
                answer=documents.ApplicationProfile,
                faults=away | {404: "No run of it is stored."},
            ),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        return await self._answer(_overview)

    async def _one(self, request: web.Request) -> web.Response:
        name = f"{request.match_info['user']}/{request.match_info['application']}"
        return await self._answer(lambda store, known: self._document(name, store, known(name)))

    async def _answer(self, question: Callable[[Depository, Known], object]) -> web.Response:
        try:
            # Encoded in that thread: an answer may have a megabyte.
            return await self._forecaster.read(lambda store, known: openapi.json(question(store, known)))
        except StoreError as error:
            raise Refused(503, str(error)) from None

    def _document(self, name: str, store: Depository, known: Application) -> documents.ApplicationProfile:
        recorded = store.runs(name)
        if not recorded:
            kept = ", ".join(sorted(store.applications())[:10]) or "none"
            raise Refused(404, f"no runs of {name!r} are kept; those that are: {kept}")
        settings = self._forecaster.settings
        history = History.of([(each.slot_s, each.run) for each in recorded], settings)
        latest = dict.fromkeys(run.settings for run in reversed(history.runs))
        before = range(max(0, len(history.runs) - _LATEST), len(history.runs))
        names = [each.name or f"#{each.id}" for each in recorded]
        user, _, application = name.partition("/")
        return documents.ApplicationProfile(
            application=application,
            user=user,
            slot_s=history.slot_s,
            resources=list(RESOURCES),
            runs=[
                documents.RunUsed(
                    run=called,
                    ended_at=each.ended_at,
                    executors=each.executors,
                    settings=_settings(run.settings),
                    stages=list(run.stages),
                    last_part=round(run.last_part, 4),
                    mean=_rows(run.mean),
                    peak=_rows(run.peak),
                )
                for run, called, each in list(zip(history.runs, names, recorded, strict=True))[-_SHOWN:]
            ],
            forecasts=[_forecast(one, known.forecast(one, history)) for one in list(latest)[:_SETTINGS]],
            history=[
                documents.PastForecast(
                    run=names[each], forecast=_from_those_before(history.runs, each, Predictor(settings.rules))
                )
                for each in before
            ],
        )


def _overview(store: Depository, known: Known) -> list[documents.ProfileEntry]:
    found = []
    for one in store.overview():
        user, _, application = one.application.partition("/")
        found.append(
            documents.ProfileEntry(
                application=application,
                user=user,
                runs=one.runs,
                settings=[_settings(settings) for settings in one.settings],
                error={model: _number(error) for model, error in known(one.application).errors.items()},
                last_run_at=one.last_ended_at,
            )
        )
    return found


def _from_those_before(runs: list[Run], number: int, predictor: Predictor) -> documents.ForecastDocument | None:
    """Return the forecast of a run by the runs with its settings before it; None where they were too few.

    The models of that time are not kept, and those of now have learnt from the run itself.
    """
    settings = runs[number].settings
    forecast = predictor.predict(settings, runs[:number])
    return None if forecast.reservation else _forecast(settings, forecast)


def _settings(settings: Settings) -> documents.RunSettings:
    return documents.RunSettings(
        input_bytes=settings.input_bytes, cores=settings.cores, memory_bytes=settings.memory_bytes
    )


def _forecast(settings: Settings, forecast: Forecast) -> documents.ForecastDocument:
    return documents.ForecastDocument(
        settings=_settings(settings),
        by=forecast.by,
        error=_number(forecast.error),
        errors={name: _number(error) for name, error in forecast.errors.items()},
        stages=list(forecast.stages),
        last_part=round(forecast.last_part, 4),
        mean=_rows(forecast.mean),
        peak=_rows(forecast.peak),
        low=_rows(forecast.low),
        high=_rows(forecast.high),
    )


def _rows(usage: Floats) -> list[list[Any]]:
    """Return the rows for JSON, where NaN, an unmeasured slot, is written as null."""
    rows: list[list[Any]] = np.round(usage, 4).tolist()
    return rows


def _number(value: float) -> float | None:
    """Return the number for JSON, which has neither NaN nor infinity."""
    return round(value, 6) if math.isfinite(value) else None
