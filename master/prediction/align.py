"""Runs of different length, stage by stage on one scale: a stage that takes longer does the same more slowly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from master.prediction.runs import RESOURCES, Floats, Run, filled

#: Multiples of a slot's length that rounding puts a hair beside a boundary.
_ROUNDING = 1e-9
#: Runs that differ by more than this part of their stages are not the same but for a few.
_NEAR = 0.25
_CPU = RESOURCES.index("cpu")


def stretched(usage: Floats, slots: int) -> Floats:
    """Return usage over another number of slots; the mean over the whole stays what it was, and each gap its place."""
    had = usage.shape[1]
    if had == slots:
        return usage
    bounds = np.linspace(0, had, slots + 1)
    if np.isnan(usage).any():
        return _means(usage, bounds)
    widened: Floats = np.diff(_up_to(bounds, usage), axis=1) * (slots / had)
    return widened


def _means(usage: Floats, bounds: Floats) -> Floats:
    """Return the means between neighbouring ``bounds``, in slots, of what was measured there; NaN where nothing was."""
    measured = ~np.isnan(usage[0])
    totals = np.diff(_up_to(bounds, np.where(measured, usage, 0.0)), axis=1)
    if measured.all():
        return np.asarray(totals / np.diff(bounds))
    lengths = np.diff(_up_to(bounds, measured[None, :].astype(float)), axis=1)
    seen = np.broadcast_to(lengths > _ROUNDING, totals.shape)
    return np.divide(totals, lengths, out=np.full_like(totals, np.nan), where=seen)


def _up_to(bounds: Floats, usage: Floats) -> Floats:
    """Return the sums of each row from the beginning to each of ``bounds``."""
    at = np.arange(usage.shape[1] + 1)
    return np.array([np.interp(bounds, at, np.concatenate(([0.0], np.cumsum(row)))) for row in usage])


def in_slots_of(run: Run, had_s: float, to_s: float) -> Run:
    """A run in slots of another length: the mean of what a slot covers, its highest peak, the nearest later end."""
    if had_s == to_s:
        return run
    had = run.mean.shape[1]
    slots = max(1, math.ceil(had * had_s / to_s - _ROUNDING))
    bounds = np.minimum(np.arange(slots + 1) * (to_s / had_s), had)
    mean = np.maximum(_means(run.mean, bounds), 0.0)
    first = np.floor(bounds[:-1] + _ROUNDING).astype(int)
    last = np.maximum(first, np.ceil(bounds[1:] - _ROUNDING).astype(int) - 1)
    highest = [np.fmax.reduce(run.peak[:, a : b + 1], axis=1) for a, b in zip(first, last, strict=True)]
    peak = np.where(np.isnan(mean), np.nan, np.stack(highest, axis=1))
    ends = [min(slots, math.ceil(end * had_s / to_s - _ROUNDING)) for end in run.stages]
    rising = all(a < b for a, b in pairwise((0, *ends)))
    return Run(run.settings, mean, peak, tuple(ends) if rising else ())


def at_lengths(usage: Floats, ends: Sequence[int], lengths: Sequence[int]) -> Floats:
    """Each stage over a length of its own (slots, at least 1 each)."""
    starts = (0, *ends[:-1])
    parts = [stretched(usage[:, a:b], n) for a, b, n in zip(starts, ends, lengths, strict=True)]
    return np.concatenate(parts, axis=1)


def alike(runs: Sequence[Run]) -> list[Run]:
    """The same runs with the same number of stages.

    Stages have no names that two runs share (Spark numbers them anew), so they are matched by their order. Runs in
    which a few are missing or too many, as the news of an end was lost or a stage was repeated, are brought to what
    most of them have, by where their stages end. Where there is no such number each run is one stage.
    """
    counts = [len(run.ends) for run in runs]
    if len(set(counts)) <= 1:
        return list(runs)
    usual = max(set(counts), key=lambda count: (counts.count(count), count))
    near = max(1, round(_NEAR * usual))
    if counts.count(usual) * 2 > len(runs) and all(abs(count - usual) <= near for count in counts):
        where = np.mean([_ends(run) for run in runs if len(run.ends) == usual], axis=0)
        found = [run if len(run.ends) == usual else _with_ends_at(run, where) for run in runs]
        if all(found):
            return [run for run in found if run is not None]
    return [run.as_one_stage() for run in runs]


def _over(run: Run) -> Floats:
    """How much of it is over at each slot's end, from 0 at its beginning to 1: the mean of the shares of time and of
    CPU, so that a stage that was held up moves the others by half."""
    slots = run.mean.shape[1]
    work = np.concatenate(([0.0], np.cumsum(filled(run.mean)[_CPU] + _ROUNDING)))
    shares: Floats = (np.arange(slots + 1) / slots + work / work[-1]) / 2
    return shares


def _ends(run: Run) -> Floats:
    """How much of it is over at the end of each stage but the last."""
    ends: Floats = _over(run)[np.array(run.ends[:-1], dtype=int)]
    return ends


def _with_ends_at(run: Run, where: Floats) -> Run | None:
    """The run with stages that end there: its own ends that are nearest, in order; others are left out, or put
    between. None: it has too few slots for them."""
    own, slots = _ends(run), run.mean.shape[1]
    if len(own) > len(where):
        ends = own[_nearest(where, own)]
    else:
        between = np.concatenate(([0.0], where[_nearest(own, where)], [1.0]))
        ends = np.interp(where, between, np.concatenate(([0.0], own, [1.0])))
    at = np.interp(ends, _over(run), np.arange(slots + 1))
    lengths = whole(np.diff(at, prepend=0.0, append=float(slots)))
    if sum(lengths) != slots:
        return None
    return Run(run.settings, run.mean, run.peak, ends_of(lengths))


def _nearest(few: Floats, many: Floats) -> list[int]:
    """For each of the former, rising, one of the latter, rising, so that they are as near as can be in all."""
    before = np.zeros(len(many))  # of the best choice so far among those before each of many
    chosen: list[npt.NDArray[np.intp]] = []
    for one in few:
        here = np.abs(many - one) + before
        costs = np.minimum.accumulate(here)
        chosen.append(np.maximum.accumulate(np.where(here <= costs, np.arange(len(many)), 0)))
        before = np.concatenate(([np.inf], costs[:-1]))
    found: list[int] = []
    last = len(many) - 1
    for best in reversed(chosen):
        found.append(int(best[last]))
        last = found[-1] - 1
    return found[::-1]


def whole(lengths: Floats) -> tuple[int, ...]:
    """Lengths of stages as whole slots, at least one each, so that their sum is as near as that allows."""
    ends = np.maximum(np.rint(np.cumsum(lengths)), 1).astype(int)
    found, before = [], 0
    for end in ends:
        before = max(before + 1, int(end))
        found.append(before)
    return tuple(int(n) for n in np.diff(found, prepend=0))


def ends_of(lengths: Sequence[int]) -> tuple[int, ...]:
    """Where stages of these lengths end."""
    return tuple(int(end) for end in np.cumsum(lengths))
