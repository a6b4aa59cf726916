"""Runs of different length, stage by stage on one scale: a stage that takes longer does the same more slowly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from master.prediction.runs import Floats, Run

#: Multiples of a slot's length that rounding puts a hair beside a boundary.
_ROUNDING = 1e-9


def stretched(usage: Floats, slots: int) -> Floats:
    """Usage over another number of slots, resources × ``slots``; the mean over the whole stays what it was."""
    had = usage.shape[1]
    if had == slots:
        return usage
    sums = np.concatenate((np.zeros((len(usage), 1)), np.cumsum(usage, axis=1)), axis=1)
    at, bounds = np.arange(had + 1), np.linspace(0, had, slots + 1)
    totals = np.array([np.interp(bounds, at, row) for row in sums])
    widened: Floats = np.diff(totals, axis=1) * (slots / had)
    return widened


def in_slots_of(run: Run, had_s: float, to_s: float) -> Run:
    """A run in slots of another length: the mean of what a slot covers, its highest peak, the nearest later end."""
    if had_s == to_s:
        return run
    had = run.mean.shape[1]
    slots = max(1, math.ceil(had * had_s / to_s - _ROUNDING))
    bounds = np.minimum(np.arange(slots + 1) * (to_s / had_s), had)
    sums = np.concatenate((np.zeros((len(run.mean), 1)), np.cumsum(run.mean, axis=1)), axis=1)
    totals = np.array([np.interp(bounds, np.arange(had + 1), row) for row in sums])
    mean = np.diff(totals, axis=1) / np.diff(bounds)
    first = np.floor(bounds[:-1] + _ROUNDING).astype(int)
    last = np.maximum(first, np.ceil(bounds[1:] - _ROUNDING).astype(int) - 1)
    peak = np.stack([run.peak[:, a : b + 1].max(axis=1) for a, b in zip(first, last, strict=True)], axis=1)
    ends = [min(slots, math.ceil(end * had_s / to_s - _ROUNDING)) for end in run.stages]
    rising = all(a < b for a, b in pairwise((0, *ends)))
    return Run(run.settings, np.maximum(mean, 0.0), peak, tuple(ends) if rising else ())


def at_lengths(usage: Floats, ends: Sequence[int], lengths: Sequence[int]) -> Floats:
    """Each stage over a length of its own (slots, at least 1 each)."""
    starts = (0, *ends[:-1])
    parts = [stretched(usage[:, a:b], n) for a, b, n in zip(starts, ends, lengths, strict=True)]
    return np.concatenate(parts, axis=1)


def alike(runs: Sequence[Run]) -> list[Run]:
    """The same runs with the same number of stages: where they do not have that, each is one stage."""
    if len({len(run.ends) for run in runs}) <= 1:
        return list(runs)
    return [run.as_one_stage() for run in runs]


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
