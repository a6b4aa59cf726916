"""Profiles with the statistics that Elasecutor gives of its Spark workloads: Table II and Fig. 2.

The profiles themselves are pictures there. What the text says of each resource are the peak, its ratio to the average
(P/A) and to the trough (P/T), and for how much of the time usage is at the peak (DP/T) and above half of it (DHP/T).
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np

from master.placement.drr import Floats

_GBIT = 1e9 / 8


@dataclass(frozen=True, slots=True)
class Shape:
    """One resource of one workload. ``peak`` is that of an executor of 3 cores and 8 GB, in cores, bytes/s or bytes."""

    peak: float
    peak_to_average: float
    peak_to_trough: float
    at_peak: float
    above_half: float


#: Workload → its resources in the order of RESOURCES (cpu, disk, network, memory).
TABLE_II: dict[str, tuple[Shape, Shape, Shape, Shape]] = {
    "terasort": (
        Shape(3, 1.8, 60, 0.224, 0.365),
        Shape(181e6, 1.5, 6.1, 0.107, 0.732),
        Shape(2.4 * _GBIT, 6.2, 237, 0.015, 0.103),
        Shape(5.9e9, 1.7, 3.3, 0.015, 0.67),
    ),
    "kmeans": (
        Shape(3, 1.7, 75, 0.154, 0.519),
        Shape(103e6, 5.6, 100, 0.019, 0.135),
        Shape(0.53 * _GBIT, 11.5, 53, 0.019, 0.058),
        Shape(6.8e9, 1.2, 6, 0.039, 0.904),
    ),
    "lr": (
        Shape(3, 2.1, 50, 0.15, 0.404),
        Shape(170e6, 6.1, 42.5, 0.068, 0.113),
        Shape(4.0 * _GBIT, 5.5, 409.6, 0.006, 0.195),
        Shape(6.5e9, 1.4, 12.0, 0.037, 0.91),
    ),
    "pagerank": (
        Shape(3, 3.9, 50, 0.015, 0.23),
        Shape(96e6, 9.1, 50, 0.008, 0.071),
        Shape(0.62 * _GBIT, 20.2, 119, 0.002, 0.025),
        Shape(6.1e9, 1.3, 11.5, 0.218, 0.84),
    ),
}
#: The cores and the memory that the peaks are of (Table I).
OF_CORES, OF_BYTES = 3.0, 8e9
_MEMORY = 3


def profile(workload: str, slots: int, cores: float, memory_limit_bytes: float, pieces: int, rng: Random) -> Floats:
    """Resources × slots. Peaks grow with the cores, memory's with its limit; ``rng`` says when it is high.

    Memory only rises, as caches fill; of other resources each level comes in ``pieces`` at random places, for "the
    usages of different resources do not correlate strongly" (§II.A).
    """
    rows = []
    for resource, shape in enumerate(TABLE_II[workload]):
        values = levels(shape, slots)
        if resource != _MEMORY:
            values = [piece for level in values for piece in np.array_split(level, pieces) if len(piece)]
            rng.shuffle(values)
        grown = memory_limit_bytes / OF_BYTES if resource == _MEMORY else cores / OF_CORES
        rows.append(np.concatenate(values) * shape.peak * grown)
    return np.stack(rows)


def levels(shape: Shape, slots: int) -> list[Floats]:
    """Fractions of the peak: a slot at the trough, the low ones, those above half of the peak, those at it.

    The average is met exactly as far as slots allow: three quarters of the peak are tried for those above half first,
    then they give way between a half and the whole.
    """
    at_peak = max(1, round(shape.at_peak * slots))
    trough = 1 if slots > at_peak + 1 else 0
    half = min(max(0, round(shape.above_half * slots) - at_peak), slots - at_peak - trough)
    low = slots - at_peak - half - trough
    floor = 1 / shape.peak_to_trough
    rest = slots / shape.peak_to_average - at_peak - trough * floor
    low_level = min(max((rest - 0.75 * half) / low, floor), 0.49) if low else 0.0
    half_level = min(max((rest - low_level * low) / half, 0.5), 0.99) if half else 0.0
    counts = ((trough, floor), (low, low_level), (half, half_level), (at_peak, 1.0))
    return [np.full(count, level) for count, level in counts if count]
