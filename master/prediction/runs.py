"""What is known of runs, and what is said of the next one.

Arrays of usage have one row for each of :data:`RESOURCES`, then slots of equal length from the run's beginning: cores,
bytes/s, bytes/s, bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from master.placement.executors import RESOURCES

__all__ = ["Floats", "Forecast", "RESOURCES", "Run", "Settings", "filled"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Settings:
    """What tells one run of an application from another beforehand (Elasecutor §IV.C): the input's size, the bounds."""

    input_bytes: int
    cores: float
    memory_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One executor's run, or the mean of several of one run.

    ``mean`` and ``peak`` (resources × slots) are of each slot: what a rate was on average and at most; of memory, too.
    A slot that was not measured, a gap, is NaN in both and for every resource; it counts as time and in no mean.
    ``stages`` are the slots at whose end a stage ended, rising, the last one the run's own length; without any, the
    whole is one stage.

    Raises:
        ValueError: arrays of different shapes or without a measured slot, numbers below 0 or not finite, a slot that
            was measured in part, ends that do not rise to the run's length.
    """

    settings: Settings
    mean: Floats
    peak: Floats
    stages: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.mean.shape != self.peak.shape or self.mean.shape[0] != len(RESOURCES) or not self.mean.shape[1]:
            raise ValueError(f"usage is {len(RESOURCES)} resources × slots, alike for mean and peak")
        measured = self.measured
        for usage in (self.mean, self.peak):
            if not np.isfinite(usage[:, measured]).all() or (usage[:, measured] < 0).any():
                raise ValueError("usage is a finite number from 0 on")
            if not np.isnan(usage[:, ~measured]).all():
                raise ValueError("a slot that was not measured is NaN for every resource, in mean and peak")
        if not measured.any():
            raise ValueError("usage is a finite number from 0 on in at least one slot")
        ends = (0, *self.ends)
        if ends[-1] != self.mean.shape[1] or any(b <= a for a, b in pairwise(ends)):
            raise ValueError(f"stages end at {self.stages}, which does not rise to {self.mean.shape[1]} slots")

    @property
    def measured(self) -> npt.NDArray[np.bool_]:
        """Return for each slot whether it was measured."""
        measured: npt.NDArray[np.bool_] = ~np.isnan(self.mean[0])
        return measured

    @property
    def ends(self) -> tuple[int, ...]:
        """The ends of its stages, at least one."""
        return self.stages or (self.mean.shape[1],)

    @property
    def lengths(self) -> Floats:
        """How long each stage took, in slots."""
        return np.diff(self.ends, prepend=0).astype(float)

    def as_one_stage(self) -> Run:
        """The same, where others have another number of stages."""
        return Run(self.settings, self.mean, self.peak)


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """The demand of an executor over time; arrays are resources × slots.

    ``low`` and ``high`` bound the mean in each slot as far as former runs tell. ``stages`` as in :class:`Run`.
    ``by`` names what said so, and ``error`` is the relative error that it had on runs that were held back (NaN: there
    were none); ``errors`` the same of each resource's total. ``reservation``: nothing is forecast, these are bounds.
    """

    mean: Floats
    peak: Floats
    low: Floats
    high: Floats
    stages: tuple[int, ...]
    by: str
    error: float
    errors: Mapping[str, float] = field(default_factory=dict)
    reservation: bool = False

    @property
    def slots(self) -> int:
        """How long it will take."""
        return int(self.mean.shape[1])


def filled(usage: Floats) -> Floats:
    """Return usage without gaps: on a straight line between the measured slots beside each; at an end as the nearest.

    At least one slot was measured.
    """
    measured = ~np.isnan(usage[0])
    if measured.all():
        return usage
    at = np.arange(usage.shape[1])
    return np.array([np.interp(at, at[measured], row[measured]) for row in usage])
