"""The choice of a run's prediction: from equal settings, from a model, or none, where its bounds are its demand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from master.prediction.align import alike, last_part, stages_of
from master.prediction.errors import Errors, errors_of, with_errors
from master.prediction.models import Model, Neighbours, Svr
from master.prediction.recent import forecast_of_latest
from master.prediction.runs import RESOURCES, Floats, Forecast, Run, Settings
from penstock.model.units import counted

#: Number of turns in which settings are held back from training.
_FOLDS = 5


@dataclass(frozen=True, slots=True)
class Rules:
    """Conditions for using each prediction.

    ``runs``: required runs with equal settings; ``settings``: required different settings for a model, which is used
    while its error on held-back settings (:attr:`Errors.judged`) is at most ``error``.
    """

    runs: int = 3
    settings: int = 4
    error: float = 0.3


@dataclass(frozen=True, slots=True, eq=False)
class _Learnt:
    model: Model
    held_back: tuple[Errors, ...]

    @property
    def error(self) -> float:
        return float(np.mean([each.judged for each in self.held_back]))


class Predictor:
    """The predictor of one application. :meth:`learn` takes seconds and may run in another thread; the other methods
    are fast.
    """

    def __init__(self, rules: Rules | None = None, models: Sequence[Callable[[], Model]] = (Svr, Neighbours)) -> None:
        self.rules = rules or Rules()
        self._models = models
        self._learnt: _Learnt | None = None
        #: Each model's error on held-back settings at the last training; name → error.
        self.errors: dict[str, float] = {}
        #: Models that could not be trained because their library cannot be imported; name → reason.
        self.unavailable: dict[str, str] = {}

    def learn(self, runs: Sequence[Run]) -> None:
        """Train every model with some settings held back, in turns, and keep the one with the least error on those.

        A model whose library is missing is skipped.
        """
        runs = alike(runs)
        self._learnt, self.errors, self.unavailable = None, {}, {}
        if len({run.settings for run in runs}) < self.rules.settings:
            return
        for make in self._models:
            model = make()
            try:
                held_back = tuple(_held_back(make, runs))
            except ImportError as error:
                self.unavailable[model.name] = str(error)
                continue
            learnt = _Learnt(model, held_back)
            self.errors[model.name] = learnt.error
            if self._learnt is None or learnt.error < self._learnt.error:
                self._learnt = learnt
        if self._learnt is not None:
            self._learnt.model.learn(runs)

    def predict(self, settings: Settings, runs: Sequence[Run]) -> Forecast:
        """Forecast a run; ``runs`` are all runs of the application, in the order of their ends."""
        same = [run for run in runs if run.settings == settings]
        if len(same) >= self.rules.runs:
            return forecast_of_latest(same)
        if self._learnt is not None and self._learnt.error <= self.rules.error:
            return with_errors(_without_band(self._learnt.model, settings), self._learnt.held_back)
        return reservation(settings, [*same] or [*runs], why=self._why_not(len(same)))

    def _why_not(self, same: int) -> str:
        if self._learnt is not None:
            others = "".join(f"; {name} is not available: {why}" for name, why in self.unavailable.items())
            return f"{self._learnt.model.name} missed held-back settings by {self._learnt.error:.0%}{others}"
        return f"{same} of {counted(self.rules.runs, 'run')} with these settings, too few others"


def _held_back(make: Callable[[], Model], runs: Sequence[Run]) -> list[Errors]:
    """Return the errors on settings held back from training, each setting once."""
    known = list(dict.fromkeys(run.settings for run in runs))
    found: list[Errors] = []
    for fold in range(min(_FOLDS, len(known))):
        out = set(known[fold::_FOLDS])
        model = make()
        model.learn([run for run in runs if run.settings not in out])
        found += [errors_of(_without_band(model, run.settings), run) for run in runs if run.settings in out]
    return found


def _without_band(model: Model, settings: Settings) -> Forecast:
    """Return a model's forecast of a run, without a band and errors."""
    mean, peak, ends = model.predict(settings)
    part = last_part(ends[-1])
    return Forecast(mean, peak, mean, mean, stages_of(ends), model.name, math.nan, last_part=part)


def reservation(settings: Settings, runs: Sequence[Run], *, why: str) -> Forecast:
    """Return a peak reservation: the requested bounds, or the highest known value where there is none.

    It lasts as long as the longest known run. For an application without runs it takes one slot, whose values continue.
    """
    longest = max(runs, key=lambda run: run.duration_slots, default=None)
    slots, part = (longest.mean.shape[1], longest.last_part) if longest else (1, 1.0)
    highest = (
        np.max([run.peak[:, run.measured].max(axis=1) for run in runs], axis=0) if runs else np.zeros(len(RESOURCES))
    )
    for name, bound in (("cpu", settings.cores), ("memory", float(settings.memory_bytes))):
        if bound:
            highest[RESOURCES.index(name)] = bound
    flat: Floats = np.repeat(highest[:, None], slots, axis=1)
    by = f"peak reservation ({why})"
    return Forecast(flat, flat, np.zeros_like(flat), flat, (slots,), by, math.nan, reservation=True, last_part=part)
