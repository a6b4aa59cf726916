"""Runs of different length, stage by stage on one scale: a stage that takes longer does the same more slowly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from master.prediction.runs import Floats, Run


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
