"""Runs of different length, stage by stage on one scale: a stage that takes longer does the same more slowly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from master.prediction.runs import LEAST_PART, RESOURCES, Floats, Run, filled

#: Multiples of a slot's length that rounding puts a hair beside a boundary.
_ROUNDING = 1e-9
#: Lengths in slots that exceed a whole number by less are that number.
_PART_ROUNDING = LEAST_PART / 100
#: Runs that differ by more than this part of their stages are not the same but for a few.
_NEAR = 0.25
_CPU = RESOURCES.index("cpu")


def stretched(usage: Floats, had_slots: float, to_slots: float) -> Floats:
    """Return usage of ``had_slots`` over another length; the mean over the whole stays, and each gap its place.

    The last slot of either length is a part of a slot where the length is no whole number.
    """
    if abs(had_slots - to_slots) <= _ROUNDING * had_slots and usage.shape[1] == _slots(to_slots):
        return usage
    bounds = np.minimum(np.arange(_slots(to_slots) + 1), to_slots) * (had_slots / to_slots)
    return _means(usage, bounds)


def _slots(length: float) -> int:
    """Return how many slots a length of so many takes, the last one in part."""
    return max(1, math.ceil(length - _PART_ROUNDING))


def last_part(length: float) -> float:
    """Return the part of its last slot that a length, in slots, takes."""
    return min(1.0, max(LEAST_PART, length - (_slots(length) - 1)))


def _means(usage: Floats, bounds: Floats) -> Floats:
    """Return the means between neighbouring ``bounds``, in slots, of what was measured there; NaN where nothing was."""
    measured = ~np.isnan(usage[0])
    totals = np.maximum(np.diff(_up_to(bounds, np.where(measured, usage, 0.0)), axis=1), 0.0)
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
    had, length = run.mean.shape[1], run.duration_slots * had_s / to_s
    slots = _slots(length)
    bounds = np.minimum(np.arange(slots + 1) * (to_s / had_s), run.duration_slots)
    mean = _means(run.mean, bounds)
    first = np.minimum(np.floor(bounds[:-1] + _ROUNDING).astype(int), had - 1)
    last = np.maximum(first, np.ceil(bounds[1:] - _ROUNDING).astype(int) - 1)
    highest = [np.fmax.reduce(run.peak[:, a : b + 1], axis=1) for a, b in zip(first, last, strict=True)]
    peak = np.where(np.isnan(mean), np.nan, np.stack(highest, axis=1))
    ends = [min(slots, math.ceil(end * had_s / to_s - _ROUNDING)) for end in run.stages]
    rising = all(a < b for a, b in pairwise((0, *ends)))
    return Run(run.settings, mean, peak, tuple(ends) if rising else (), last_part(length))


def at_ends(usage: Floats, ends: Sequence[float], to_ends: Sequence[float]) -> Floats:
    """Return usage whose stages end at ``ends`` with each stage stretched to end at ``to_ends``, in slots.

    All ends but the last are whole numbers.
    """
    starts, to_starts = (0, *map(int, ends[:-1])), (0, *to_ends[:-1])
    stages = np.split(usage, starts[1:], axis=1)
    lengths = zip(stages, np.subtract(ends, starts), np.subtract(to_ends, to_starts), strict=True)
    return np.concatenate([stretched(stage, had, to) for stage, had, to in lengths], axis=1)


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
    work = np.concatenate(([0.0], np.cumsum((filled(run.mean)[_CPU] + _ROUNDING) * run.slot_lengths)))
    shares: Floats = (_bounds(run) / run.duration_slots + work / work[-1]) / 2
    return shares


def _bounds(run: Run) -> Floats:
    """Return where its slots begin, and where the last one ends."""
    return np.concatenate(([0.0], np.cumsum(run.slot_lengths)))


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
    at = np.interp(ends, _over(run), _bounds(run))
    if len(at) >= slots:
        return None
    found = whole_ends(np.diff(at, prepend=0.0, append=run.duration_slots))
    return replace(run, stages=(*map(int, found[:-1]), slots))


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


def whole_ends(lengths: Floats) -> tuple[float, ...]:
    """Return where stages of these lengths end, in slots.

    Each end but the last is the nearest whole number that leaves a slot, or a part of one, to every stage. The last is
    the sum of the lengths, unless that has fewer slots than there are stages: then each stage takes a slot.
    """
    stages, length = len(lengths), float(lengths.sum())
    if _slots(length) < stages:
        length = float(stages)
    found: list[float] = []
    for stage, end in enumerate(np.cumsum(lengths)[:-1], start=1):
        least, most = (found[-1] if found else 0) + 1, _slots(length) - (stages - stage)
        found.append(float(min(max(int(np.rint(end)), least), most)))
    return (*found, length)


def stages_of(ends: Sequence[float]) -> tuple[int, ...]:
    """Return the slots at whose end a stage ends that ends there; the last one may end within its slot."""
    return (*map(int, ends[:-1]), _slots(ends[-1]))
