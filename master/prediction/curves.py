"""Runs as vectors of equal length, for models of new settings.

A run is split into the length of each stage, the mean use of each resource, and the shape of the use over time. Sizes
are learnt as logarithms: twice the input makes a run longer by a factor, not by a number of slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from master.prediction.align import at_ends, whole_ends
from master.prediction.runs import RESOURCES, Floats, Run, Settings, filled

#: Number of points of a stage's shape.
POINTS = 16
#: Levels below this count as zero (cores, bytes, bytes/s).
_NOTHING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """n runs: ``sizes`` (n × (stages + 2 resources)): logarithms of stage lengths and of the mean and peak levels;
    ``shapes`` (n × 2 resources × stages · POINTS): usage ÷ its level.
    """

    stages: int
    sizes: Floats
    shapes: Floats

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Curves:
        """Return the curves of runs with equal numbers of stages."""
        stages = len(runs[0].ends)
        both = np.array([_points(run) for run in runs])
        levels = both.mean(axis=2)
        lengths = np.array([run.lengths for run in runs])
        sizes = np.log(np.concatenate((lengths, np.maximum(levels, _NOTHING)), axis=1))
        shapes = both / np.maximum(levels, _NOTHING)[:, :, None]
        return cls(stages, sizes, shapes)

    def back(self, sizes: Floats, shape: Floats) -> tuple[Floats, Floats, tuple[float, ...]]:
        """Return mean and peak (resources × slots) and the ends of stages, from one vector of sizes and one shape."""
        to_ends = whole_ends(np.exp(sizes[: self.stages]))
        levels = np.exp(sizes[self.stages :])
        levels[levels <= 2 * _NOTHING] = 0.0
        points = np.maximum(shape, 0.0) * levels[:, None]
        ends = [POINTS * (stage + 1) for stage in range(self.stages)]
        usage = at_ends(points, ends, to_ends)
        mean, peak = usage[: len(RESOURCES)], usage[len(RESOURCES) :]
        return mean, np.maximum(mean, peak), to_ends


def _points(run: Run) -> Floats:
    both = np.concatenate((filled(run.mean), filled(run.peak)))
    return at_ends(both, run.ends, [POINTS * (stage + 1) for stage in range(len(run.ends))])


def features(settings: Sequence[Settings]) -> Floats:
    """Return settings as a model's input (n × 3): logarithms, so that equal steps are equal factors."""
    rows = [(each.input_bytes, each.cores, each.memory_bytes) for each in settings]
    logarithms: Floats = np.log2(np.maximum(np.array(rows, dtype=float), _NOTHING))
    return logarithms
