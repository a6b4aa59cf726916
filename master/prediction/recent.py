"""The same application with the same settings again: the mean of its latest runs (Elasecutor §IV.C)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from master.prediction.align import alike, at_lengths, ends_of, whole
from master.prediction.errors import errors_of, totals_missed
from master.prediction.runs import Floats, Forecast, Run, filled
from penstock.model.units import counted

#: "the average resource time series of the latest 3 runs"
LATEST = 3


def mean_of_latest(runs: Sequence[Run], latest: int = LATEST) -> Forecast:
    """Of runs in the order in which they ended, at least one.

    They are aligned stage by stage: a stage takes as long as it did on average. The peak of a slot is the highest of
    all runs there. The band is what the runs spanned, wider by what the mean of the others missed each one by. A slot
    that no run measured is taken from those beside it.
    """
    chosen = alike(runs[-latest:])
    mean = _forecast(chosen)
    if len(chosen) == 1:
        return mean
    missed = [errors_of(_forecast([*chosen[:each], *chosen[each + 1 :]]), run) for each, run in enumerate(chosen)]
    shapes = np.array([[min(1.0, error) for error in each.shape.values()] for each in missed])
    margin: Floats = mean.mean * shapes.mean(axis=0)[:, None]
    return Forecast(
        mean=mean.mean,
        peak=mean.peak,
        low=np.maximum(0.0, mean.low - margin),
        high=mean.high + margin,
        stages=mean.stages,
        by=f"mean of {counted(len(chosen), 'run')}",
        error=float(np.mean([each.judged for each in missed])),
        errors=totals_missed(missed),
    )


def merged(runs: Sequence[Run]) -> Run:
    """Return the executors of one run as one: their mean, aligned stage by stage; a slot's peak is the highest there.

    A slot that was measured of none of them is a gap.
    """
    if len(runs) == 1:
        return runs[0]
    mean = _mean(alike(runs))
    stages = mean.stages if len(mean.stages) > 1 else ()
    return Run(runs[0].settings, mean.mean, mean.peak, stages)


def _forecast(runs: Sequence[Run]) -> Forecast:
    mean = _mean(runs)
    return replace(mean, mean=filled(mean.mean), peak=filled(mean.peak), low=filled(mean.low), high=filled(mean.high))


def _mean(runs: Sequence[Run]) -> Forecast:
    """Return the mean of what was measured; NaN where nothing was."""
    lengths = whole(np.mean([run.lengths for run in runs], axis=0))
    means = np.array([at_lengths(run.mean, run.ends, lengths) for run in runs])
    peaks = np.array([at_lengths(run.peak, run.ends, lengths) for run in runs])
    seen = (~np.isnan(means)).sum(axis=0)
    return Forecast(
        mean=np.divide(np.nansum(means, axis=0), seen, out=np.full(means[0].shape, np.nan), where=seen > 0),
        peak=np.fmax(np.fmax.reduce(peaks), np.fmax.reduce(means)),
        low=np.fmin.reduce(means),
        high=np.fmax.reduce(means),
        stages=ends_of(lengths),
        by="1 run",
        error=math.nan,
    )
