"""Alignment of runs of different length, stage by stage: a longer stage is the same stage at a slower pace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from master.prediction.runs import LEAST_PART, RESOURCES, Floats, Run, filled

#: Tolerance for multiples of a slot's length that rounding moves off a boundary.
_ROUNDING = 1e-9
#: Lengths in slots that exceed a whole number by less than this are rounded down.
_PART_ROUNDING = LEAST_PART / 100
#: Runs whose numbers of stages differ by more than this fraction are not considered similar.
_NEAR = 0.25
_CPU = RESOURCES.index("cpu")


def stretched(usage: Floats, had_slots: float, to_slots: float) -> Floats:
    """Return usage of ``had_slots`` stretched to another length; the overall mean and the relative places of gaps stay.

    The last slot of either length is a part of a slot where the length is not a whole number.
    """
    if abs(had_slots - to_slots) <= _ROUNDING * had_slots and usage.shape[1] == _slots(to_slots):
        return usage
    bounds = np.minimum(np.arange(_slots(to_slots) + 1), to_slots) * (had_slots / to_slots)
    return _means(usage, bounds)


def _slots(length: float) -> int:
    """Return the number of slots of a length; the last may be partial."""
    return max(1, math.ceil(length - _PART_ROUNDING))


def last_part(length: float) -> float:
    """Return the fraction of its last slot that a length, in slots, takes."""
    return min(1.0, max(LEAST_PART, length - (_slots(length) - 1)))


def _means(usage: Floats, bounds: Floats) -> Floats:
    """Return the means of measured usage between neighbouring ``bounds``, in slots; NaN where nothing was measured."""
    measured = ~np.isnan(usage[0])
    totals = np.maximum(np.diff(_up_to(bounds, np.where(measured, usage, 0.0)), axis=1), 0.0)
    if measured.all():
        return np.asarray(totals / np.diff(bounds))
    lengths = np.diff(_up_to(bounds, measured[None, :].astype(float)), axis=1)
    seen = np.broadcast_to(lengths > _ROUNDING, totals.shape)
    return np.divide(totals, lengths, out=np.full_like(totals, np.nan), where=seen)


def _up_to(bounds: Floats, usage: Floats) -> Floats:
    """Return each row's sums from the beginning to each of ``bounds``."""
    at = np.arange(usage.shape[1] + 1)
    return np.array([np.interp(bounds, at, np.concatenate(([0.0], np.cumsum(row)))) for row in usage])


def in_slots_of(run: Run, had_s: float, to_s: float) -> Run:
    """Convert a run to slots of another length: means over the new slots, their highest peaks, ends rounded up."""
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
    """Return usage whose stages end at ``ends``, with each stage stretched to end at ``to_ends``, in slots.

    All ends but the last are whole numbers.
    """
    starts, to_starts = (0, *map(int, ends[:-1])), (0, *to_ends[:-1])
    stages = np.split(usage, starts[1:], axis=1)
    lengths = zip(stages, np.subtract(ends, starts), np.subtract(to_ends, to_starts), strict=True)
    return np.concatenate([stretched(stage, had, to) for stage, had, to in lengths], axis=1)


def alike(runs: Sequence[Run]) -> list[Run]:
    """Return the runs with equal numbers of stages.

    Stages have no names that two runs share (Spark numbers them anew), so they are matched by their order. A run with a
    few stages missing or extra, because an end was not reported or a stage was repeated, is brought to the usual
    number, by the positions of stages' ends. Without a usual number each run becomes one stage.
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
    return [replace(run, stages=()) for run in runs]


def _over(run: Run) -> Floats:
    """Return the completed fraction of the run at each slot's end, from 0 to 1: the mean of the fractions of time and
    of CPU work, so that a delayed stage moves the others by half.
    """
    work = np.concatenate(([0.0], np.cumsum((filled(run.mean)[_CPU] + _ROUNDING) * run.slot_lengths)))
    shares: Floats = (_bounds(run) / run.duration_slots + work / work[-1]) / 2
    return shares


def _bounds(run: Run) -> Floats:
    """Return the slots' beginnings, and the end of the last one."""
    return np.concatenate(([0.0], np.cumsum(run.slot_lengths)))


def _ends(run: Run) -> Floats:
    """Return the completed fraction at the end of each stage but the last."""
    ends: Floats = _over(run)[np.array(run.ends[:-1], dtype=int)]
    return ends


def _with_ends_at(run: Run, where: Floats) -> Run | None:
    """Return the run with stages that end at ``where``: its own nearest ends, in order, dropping extra ones and
    inserting missing ones. None: it has too few slots for them.
    """
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
    """Match each of ``few`` (rising) to one of ``many`` (rising), in order, with the least total distance."""
    before = np.zeros(len(many))  # of the best choice so far among the elements before each of many
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
    """Return the ends of stages of these lengths, in slots.

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
    """Return the slots at whose end the stages end; the last stage may end within its slot."""
    return (*map(int, ends[:-1]), _slots(ends[-1]))
