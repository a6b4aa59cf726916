"""Reservation of peaks, as in the schedulers that Elasecutor is compared with (§V.A.2)."""

from __future__ import annotations

from functools import reduce

import numpy as np

from master.placement.drr import Floats
from master.placement.executors import RESOURCES, TOLERANCE
from master.placement.workers import Mask

#: Spark's dynamic allocation gives multiples of <1 core, 2 GB> (§V.A.2).
UNIT_CORES, UNIT_BYTES = 1.0, 2e9
_CPU, _MEMORY = RESOURCES.index("cpu"), RESOURCES.index("memory")


def reserving(*without: str) -> Mask:
    """Return all resources except the named ones."""
    return np.array([name not in without for name in RESOURCES])


def peak(profile: Floats, reserves: Mask) -> Floats:
    """Return the largest demand of each reserved resource, 0 for the others (resources × 1)."""
    held: Floats = np.where(reserves, profile.max(axis=1), 0.0)[:, None]
    return held


def in_units(held: Floats) -> Floats:
    """Return the units of <1 core, 2 GB> that cover the holdings."""
    units = np.ceil(max(held[_CPU, 0] / UNIT_CORES, held[_MEMORY, 0] / UNIT_BYTES) - TOLERANCE)
    rounded = np.zeros_like(held)
    rounded[_CPU], rounded[_MEMORY] = units * UNIT_CORES, units * UNIT_BYTES
    return rounded


def roomy(free: Floats, capacity: Floats) -> list[float]:
    """Return the largest peak that fits one machine (resources): :func:`fit` for one peak, in plain numbers."""
    room: list[float] = (free + TOLERANCE * capacity).tolist()
    return room


def fit(peaks: Floats, free: Floats, capacity: Floats) -> Mask:
    """Return which peaks fit a machine, or which machines fit a peak: one of the two is n × resources."""
    # For four columns, three "and" operations are several times as fast as a reduction of each row.
    fits: Mask = reduce(np.logical_and, (peaks <= free + TOLERANCE * capacity).T)
    return fits
