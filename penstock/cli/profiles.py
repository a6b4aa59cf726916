"""The master's data about an application's executors, and the errors of its forecasts. Pure.

Series are resources × slots, in cores, bytes/s and bytes; a slot takes ``slot_s`` seconds, and the last slot
``last_part`` of that. A slot that was not measured is NaN here, and null in JSON.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Annotated, Any

import msgspec

Series = list[list[float]]
#: The covered fraction of the last slot; 1 from a master that does not send it.
LastPart = Annotated[float, msgspec.Meta(gt=0, le=1)]
#: A slot of which a smaller part was measured is a gap: the rest is rounding.
_LEAST_SEEN = 1e-9
#: A length in slots that exceeds a whole number by less is rounded to it.
_ROUNDING = 1e-6


class Settings(msgspec.Struct, frozen=True):
    """The properties that distinguish runs beforehand: the input's size and the bounds."""

    input_bytes: int = 0
    cores: float = 0.0
    memory_bytes: int = 0


class Entry(msgspec.Struct, frozen=True):
    """An application of ``GET /profiles``. ``error``: forecaster → its relative error; None: not evaluated."""

    application: str
    user: str
    runs: int = 0
    settings: list[Settings] = []
    error: dict[str, float | None] = {}
    last_run_at: float = 0.0


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """Measured or predicted use of a run: the mean of its executors. A stage ends at the end of each of ``stages``."""

    mean: Series
    peak: Series
    settings: Settings = Settings()
    stages: list[int] = []
    last_part: LastPart = 1.0

    @property
    def duration_slots(self) -> float:
        """The length in slots."""
        return len(self.mean[0]) - 1 + self.last_part


class Run(Use, frozen=True, kw_only=True):
    """The measured use of one run."""

    run: str | int
    ended_at: float = 0.0


class Forecast(Use, frozen=True, kw_only=True):
    """A forecast for a run with these settings; ``low`` and ``high`` bound the mean. ``error`` None: not evaluated."""

    low: Series = []
    high: Series = []
    by: str = ""
    error: float | None = None


class Foretold(msgspec.Struct, frozen=True):
    """The forecast of a run by the runs with its settings before it; None: too few were recorded."""

    run: str | int
    forecast: Forecast | None = None


class Application(msgspec.Struct, frozen=True):
    """``GET /profiles/USER/APPLICATION`` of the master; runs in the order of their ends.

    Raises: ValueError: series that do not have one row for each resource, all of the same length.
    """

    application: str
    user: str
    slot_s: float
    resources: list[str]
    runs: list[Run] = []
    forecasts: list[Forecast] = []
    history: list[Foretold] = []

    def __post_init__(self) -> None:
        foretold = [past.forecast for past in self.history if past.forecast is not None]
        usages: list[Use] = [*self.runs, *self.forecasts, *foretold]
        for one in usages:
            bands = [one.low, one.high] if isinstance(one, Forecast) and one.low and one.high else []
            for series in [one.mean, one.peak, *bands]:
                if len(series) != len(self.resources) or {len(row) for row in series} != {len(one.mean[0])}:
                    raise ValueError("series are one row for each resource, all of the same length")
                if not one.mean[0]:
                    raise ValueError("series without slots")

    def latest(self) -> list[Run]:
        """Return the runs, oldest first."""
        return sorted(self.runs, key=lambda run: run.ended_at)

    def before(self, run: Run) -> Forecast | None:
        """Return the forecast made before a run; None if there was none, or the master does not send it any more."""
        return next((past.forecast for past in self.history if str(past.run) == str(run.run)), None)


class Errors(msgspec.Struct, frozen=True):
    """Errors for one resource, relative to the run: of the sum over time, and of the highest peak; positive: too high.

    None if the run used nothing. ``within`` is the share of slots whose mean lies in the band; None: there is no band.
    """

    total: float | None
    peak: float | None
    within: float | None


class Compared(msgspec.Struct, frozen=True):
    """A run and its forecast, resource → errors; ``length`` is a relative error, too."""

    run: str
    ended_at: float
    settings: Settings
    by: str
    length: float
    errors: dict[str, Errors]


def compare(application: Application, run: Run, forecast: Forecast) -> Compared:
    """Return a forecast's errors; a forecast of another length is stretched to the run's length."""
    errors = {}
    for index, name in enumerate(application.resources):
        came = run.mean[index]
        within = None
        if forecast.low and forecast.high:
            low, high = (
                stretched(band[index], forecast.duration_slots, run.duration_slots)
                for band in (forecast.low, forecast.high)
            )
            measured = [each for each in zip(low, came, high, strict=True) if not any(map(math.isnan, each))]
            inside = sum(a - _hair(a) <= value <= b + _hair(b) for a, value, b in measured)
            within = inside / len(measured) if measured else None
        errors[name] = Errors(
            total=_relative(
                average(forecast.mean[index], forecast.last_part) * forecast.duration_slots,
                average(came, run.last_part) * run.duration_slots,
            ),
            peak=_relative(_highest(forecast.peak[index]), _highest(run.peak[index])),
            within=within,
        )
    length = forecast.duration_slots / run.duration_slots - 1
    return Compared(str(run.run), run.ended_at, run.settings, forecast.by, length, errors)


def stretched(values: Sequence[float], had_slots: float, to_slots: float) -> list[float]:
    """Return a series of ``had_slots`` stretched to another length; its mean and the places of its gaps stay the same.

    If a length is not a whole number, the last slot is a part of a slot.
    """
    count = max(1, math.ceil(to_slots - _ROUNDING))
    if math.isclose(had_slots, to_slots) and count == len(values):
        return list(values)
    bounds = [min(index, to_slots) * had_slots / to_slots for index in range(count + 1)]
    used = _parts([0.0 if math.isnan(value) else value for value in values], bounds)
    seen = _parts([0.0 if math.isnan(value) else 1.0 for value in values], bounds)
    return [part / slot if slot > _LEAST_SEEN else math.nan for part, slot in zip(used, seen, strict=True)]


def _parts(values: Sequence[float], bounds: Sequence[float]) -> list[float]:
    """Return the sum of the values between neighbouring ``bounds``, in slots."""
    had = len(values)
    sums = [0.0, *accumulate(values)]

    def up_to(at: float) -> float:
        whole = min(had, int(at))
        return sums[whole] + (values[whole] * (at - whole) if whole < had else 0.0)

    return [end - start for start, end in pairwise(map(up_to, bounds))]


def measured(values: Sequence[float]) -> list[float]:
    """Return the values of the measured slots."""
    return [value for value in values if not math.isnan(value)]


def with_gaps(document: Any) -> Any:
    """Return the master's answer with NaN for each null in the rows of a series."""
    if isinstance(document, dict):
        return {key: with_gaps(value) for key, value in document.items()}
    if not isinstance(document, list):
        return document
    if all(value is None or isinstance(value, int | float) for value in document):
        return [math.nan if value is None else value for value in document]
    return [with_gaps(value) for value in document]


def average(values: Sequence[float], last_part: float) -> float:
    """Return the mean over the measured time; NaN if nothing was measured."""
    lengths = [1.0] * (len(values) - 1) + [last_part]
    seen = [(value, length) for value, length in zip(values, lengths, strict=True) if not math.isnan(value)]
    total = math.fsum(value * length for value, length in seen)
    return total / math.fsum(length for _, length in seen) if seen else math.nan


def _highest(values: Sequence[float]) -> float:
    return max(measured(values), default=math.nan)


def _relative(said: float, came: float) -> float | None:
    return said / came - 1 if came > 0 and not math.isnan(said) else None


def _hair(value: float) -> float:
    """Return a tolerance: numbers are sent as text, and sums are formed in another order."""
    return abs(value) * 1e-6
