"""Errors of a forecast compared with the actual run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from master.prediction.align import stretched
from master.prediction.runs import RESOURCES, Floats, Forecast, Run

#: The resources that matter most for resizing and placement; disk and network are too erratic for choosing a predictor.
_JUDGED = [RESOURCES.index("cpu"), RESOURCES.index("memory")]


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative errors, resource → error; 0 for a resource neither used nor forecast.

    ``total``: of the total use (core-seconds, bytes, byte-seconds). ``peak``: of the maximum of all slots. ``shape``:
    mean absolute error of a slot, with both scaled to one length, relative to the mean. ``length``: of the duration.
    """

    total: dict[str, float]
    peak: dict[str, float]
    shape: dict[str, float]
    length: float

    @property
    def judged(self) -> float:
        """Return one number for comparing predictors: the mean of CPU's and memory's totals, their shapes and the
        length.
        """
        names = [RESOURCES[each] for each in _JUDGED]
        parts = [self.total[name] for name in names] + [self.shape[name] for name in names] + [self.length]
        return sum(parts) / len(parts)


def errors_of(forecast: Forecast, run: Run) -> Errors:
    """Compare over the measured slots; in the run's total a gap counts as the mean of the other slots."""
    measured = run.measured
    same = stretched(forecast.mean, forecast.duration_slots, run.duration_slots)[:, measured]
    came, lengths = run.mean[:, measured], run.slot_lengths[measured]
    return Errors(
        total=_named(_relative(forecast.total, run.total)),
        peak=_named(_relative(forecast.peak.max(axis=1), run.peak[:, measured].max(axis=1))),
        shape=_named(_ratio(np.abs(same - came) @ lengths, came @ lengths)),
        length=abs(forecast.duration_slots - run.duration_slots) / run.duration_slots,
    )


def with_errors(forecast: Forecast, missed: Sequence[Errors]) -> Forecast:
    """Return a forecast with the mean of such forecasts' errors, and with a band widened by their errors in a slot."""
    shapes = np.array([[min(1.0, error) for error in each.shape.values()] for each in missed])
    margin: Floats = forecast.mean * shapes.mean(axis=0)[:, None]
    return replace(
        forecast,
        low=np.maximum(0.0, forecast.low - margin),
        high=forecast.high + margin,
        error=float(np.mean([each.judged for each in missed])),
        errors={name: float(np.mean([each.total[name] for each in missed])) for name in RESOURCES},
    )


def _relative(said: Floats, came: Floats) -> Floats:
    return _ratio(np.abs(said - came), came)


def _ratio(wrong: Floats, of: Floats) -> Floats:
    """Return ``wrong`` ÷ ``of``; infinity for any error relative to 0."""
    out: Floats = np.where(wrong > 0, np.inf, 0.0)
    with np.errstate(over="ignore"):  # almost nothing was used: the ratio overflows to infinity
        np.divide(wrong, of, out=out, where=of > 0)
    return out


def _named(values: Floats) -> dict[str, float]:
    return dict(zip(RESOURCES, map(float, values), strict=True))
