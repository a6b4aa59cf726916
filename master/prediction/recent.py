"""The same application with the same settings again: the mean of its latest runs (Elasecutor §IV.C)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from master.prediction.align import alike, at_lengths, ends_of, whole
from master.prediction.errors import errors_of, totals_missed
from master.prediction.runs import Floats, Forecast, Run
from penstock.model.units import counted

#: "the average resource time series of the latest 3 runs"
LATEST = 3


def mean_of_latest(runs: Sequence[Run], latest: int = LATEST) -> Forecast:
    """Of runs in the order in which they ended, at least one.

    They are aligned stage by stage: a stage takes as long as it did on average. The peak of a slot is the highest of
    all runs there. The band is what the runs spanned, wider by what the mean of the others missed each one by.
    """
    chosen = alike(runs[-latest:])
    mean = _mean(chosen)
    if len(chosen) == 1:
        return mean
    missed = [errors_of(_mean([*chosen[:each], *chosen[each + 1 :]]), run) for each, run in enumerate(chosen)]
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
    """The executors of one run as one: their mean, aligned stage by stage; the peak of a slot is the highest there."""
    if len(runs) == 1:
        return runs[0]
    mean = _mean(alike(runs))
    stages = mean.stages if len(mean.stages) > 1 else ()
    return Run(runs[0].settings, mean.mean, mean.peak, stages)


def _mean(runs: Sequence[Run]) -> Forecast:
    lengths = whole(np.mean([run.lengths for run in runs], axis=0))
    means = np.array([at_lengths(run.mean, run.ends, lengths) for run in runs])
    peaks = np.array([at_lengths(run.peak, run.ends, lengths) for run in runs])
    return Forecast(
        mean=means.mean(axis=0),
        peak=np.maximum(peaks.max(axis=0), means.max(axis=0)),
        low=means.min(axis=0),
        high=means.max(axis=0),
        stages=ends_of(lengths),
        by="1 run",
        error=math.nan,
    )
