"""Forecasts in a simulated cluster: the master's own depository, in memory, and its own prediction (Elasecutor §IV.C).

No model is trained: an application without enough runs of equal settings is reserved its bounds.
"""

from __future__ import annotations

from functools import cached_property

from master.core import events as e
from master.core.instructions import Predict, StoreRun
from master.prediction import profile_of
from master.prediction.application import Application, ForecastSettings, History
from master.store import Database, Depository


class Forecasts:
    """Stores the runs of executors and answers requests for forecasts, as master/forecaster.py does in its threads."""

    def __init__(self, settings: ForecastSettings) -> None:
        self.made = 0  # forecasts that were not reservations of the bounds
        self._settings = settings

    @cached_property
    def _depository(self) -> Depository:
        return Depository(Database("sqlite://"))

    def answer(self, asked: Predict | StoreRun, now_s: float) -> e.Forecasted | e.ForecastsOutdated:
        """Carry out an instruction of the master's core; return its answer."""
        match asked:
            case StoreRun(application, run, slot_s, usage):
                self._depository.add(application, usage, ended_at=now_s, slot_s=slot_s, name=run)
                return e.ForecastsOutdated(application)
            case Predict(application, settings, sizing):
                recorded = self._depository.runs(application)
                history = History.of([(each.slot_s, each.run) for each in recorded], self._settings)
                forecast = Application(self._settings).forecast(settings, history)
                profile = profile_of(forecast, settings, history.slot_s, self._settings.promises, sizing)
                self.made += not forecast.reservation
                return e.Forecasted(application, settings, profile, forecast.by, forecast.error, sizing)
