"""Forecast for equal settings: for each resource the mean of the latest runs (Elasecutor §IV.C), or the last run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from master.prediction.align import alike, at_ends, last_part, stages_of, whole_ends
from master.prediction.errors import Errors, errors_of, with_errors
from master.prediction.runs import RESOURCES, Forecast, Run, filled
from penstock.model.units import counted

#: "the average resource time series of the latest 3 runs"
LATEST = 3
#: Number of latest runs whose forecasts are compared with them.
_JUDGED = 8
#: The candidates for a resource: the mean of the latest runs, or the last run.
MEAN, LAST = "mean", "last"
#: The candidate for each resource while neither has a smaller error. Reads from disks depend on the page cache, which
#: the run before left behind.
PRIOR: Mapping[str, str] = {"cpu": MEAN, "disk": LAST, "network": MEAN, "memory": MEAN}


#: The errors of each candidate's forecast of a run, made from the runs before it.
_Judged = Mapping[str, Errors]


def forecast_of_latest(runs: Sequence[Run]) -> Forecast:
    """Forecast each resource by the candidate with the least error on former runs; ``runs`` are in order, at least one.

    Both candidates take as long as the mean of the latest runs, stage by stage. The band spans those runs, widened by
    the errors of former forecasts in a slot.
    """
    judged = [{name: errors_of(one, run) for name, one in forecasts.items()} for forecasts, run in walk_forward(runs)]
    chosen = _chosen(judged)
    candidates = _candidates(alike(runs[-LATEST:]))
    rows = [candidates[chosen[name]] for name in RESOURCES]
    forecast = replace(
        candidates[MEAN],
        mean=np.array([one.mean[row] for row, one in enumerate(rows)]),
        peak=np.array([one.peak[row] for row, one in enumerate(rows)]),
        by=_named(chosen, min(LATEST, len(runs))),
    )
    low, high = np.minimum(forecast.low, forecast.mean), np.maximum(forecast.high, forecast.mean)
    forecast = replace(forecast, low=low, high=high)
    return with_errors(forecast, [_combined(each, chosen) for each in judged]) if judged else forecast


def merged(runs: Sequence[Run]) -> Run:
    """Merge the executors of one run: their mean, aligned stage by stage; a slot's peak is the highest there.

    A slot that was measured for none of them is a gap.
    """
    if len(runs) == 1:
        return runs[0]
    mean = _mean(alike(runs))
    stages = mean.stages if len(mean.stages) > 1 else ()
    return Run(runs[0].settings, mean.mean, mean.peak, stages, mean.last_part)


def walk_forward(runs: Sequence[Run]) -> Iterator[tuple[dict[str, Forecast], Run]]:
    """Yield, for each of the latest runs, each candidate's forecast from the runs before it, and the run."""
    for number in range(max(1, len(runs) - _JUDGED), len(runs)):
        yield _candidates(alike(runs[max(0, number - LATEST) : number])), runs[number]


def _chosen(judged: Sequence[_Judged]) -> dict[str, str]:
    """Return for each resource the candidate with the least error of totals; the prior if both are equal.

    An error above the whole total counts as the whole: a run with almost no use weighs no more than another.
    """
    chosen = {}
    for name, prior in PRIOR.items():
        other = LAST if prior == MEAN else MEAN
        missed = {
            candidate: sum(min(1.0, each[candidate].total[name]) for each in judged) for candidate in (prior, other)
        }
        chosen[name] = other if missed[other] < missed[prior] - 1e-9 * len(judged) else prior
    return chosen


def _combined(judged: _Judged, chosen: Mapping[str, str]) -> Errors:
    """Return the errors of the forecast that combines the candidates chosen for each resource."""
    each = {name: judged[candidate] for name, candidate in chosen.items()}
    return Errors(
        total={name: errors.total[name] for name, errors in each.items()},
        peak={name: errors.peak[name] for name, errors in each.items()},
        shape={name: errors.shape[name] for name, errors in each.items()},
        length=judged[MEAN].length,
    )


def _candidates(runs: Sequence[Run]) -> dict[str, Forecast]:
    """Return the forecasts of all candidates, from runs with equal numbers of stages."""
    some = _mean(runs)  # an unmeasured slot is interpolated from its neighbours
    mean = replace(some, mean=filled(some.mean), peak=filled(some.peak), low=filled(some.low), high=filled(some.high))
    to_ends = (*mean.stages[:-1], mean.duration_slots)
    last = runs[-1]
    used, peak = (filled(at_ends(usage, last.ends, to_ends)) for usage in (last.mean, last.peak))
    return {MEAN: mean, LAST: replace(mean, mean=used, peak=np.maximum(used, peak))}


def _named(chosen: Mapping[str, str], runs: int) -> str:
    """Return a forecast's display name, which lists the resources taken from the last run."""
    last = [name for name, candidate in chosen.items() if candidate == LAST]
    if runs == 1:
        return "1 run"
    if len(last) == len(chosen):
        return "the last run"
    return f"mean of {counted(runs, 'run')}" + (f", {' and '.join(last)} of the last" if last else "")


def _mean(runs: Sequence[Run]) -> Forecast:
    """Return the mean of measured values, NaN where none exists; a stage takes its mean length.

    The peak of a slot is the highest of all runs there.
    """
    to_ends = whole_ends(np.mean([run.lengths for run in runs], axis=0))
    means = np.array([at_ends(run.mean, run.ends, to_ends) for run in runs])
    peaks = np.array([at_ends(run.peak, run.ends, to_ends) for run in runs])
    seen = (~np.isnan(means)).sum(axis=0)
    return Forecast(
        mean=np.divide(np.nansum(means, axis=0), seen, out=np.full(means[0].shape, np.nan), where=seen > 0),
        peak=np.fmax(np.fmax.reduce(peaks), np.fmax.reduce(means)),
        low=np.fmin.reduce(means),
        high=np.fmax.reduce(means),
        stages=stages_of(to_ends),
        by=counted(len(runs), "run"),
        error=math.nan,
        last_part=last_part(to_ends[-1]),
    )
