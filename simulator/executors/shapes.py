"""Generate profiles with the statistics that Elasecutor gives of its Spark workloads: Table II and Fig. 2.

The paper shows the profiles only as pictures. Per resource it gives the peak, the peak's ratio to the average (P/A) and
to the trough (P/T), and the fractions of the time with usage at the peak (DP/T) and above half of it (DHP/T).
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np

from master.placement.drr import Floats

_GBIT = 1e9 / 8


@dataclass(frozen=True, slots=True)
class Shape:
    """One resource of one workload. ``peak`` is for an executor of 3 cores and 8 GB, in cores, bytes/s or bytes."""

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
#: The cores and the memory of the executor to which the peaks refer (Table I).
OF_CORES, OF_BYTES = 3.0, 8e9
_MEMORY = 3


def profile(workload: str, slots: int, cores: float, memory_limit_bytes: float, pieces: int, rng: Random) -> Floats:
    """Return a profile, resources × slots. Peaks grow with the cores, memory's peak with its limit.

    Memory only rises, as caches fill. For other resources, each level is cut into ``pieces`` that ``rng`` shuffles,
    because "the usages of different resources do not correlate strongly" (§II.A).
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
    """Return fractions of the peak: one slot at the trough, low slots, slots above half the peak, slots at the peak.

    The average is met exactly as far as slots allow. The slots above half get three quarters of the peak at first; if
    that misses the average, they get a level between a half and the whole peak.
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
