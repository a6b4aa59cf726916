"""What is known of runs, and what is said of the next one.

Arrays of usage have one row for each of :data:`RESOURCES`, then slots of equal length from the run's beginning: cores,
bytes/s, bytes/s, bytes. The last slot is as long as the run lasted in it: a part of a slot, ``last_part``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from master.placement.executors import RESOURCES

__all__ = ["Floats", "Forecast", "LEAST_PART", "RESOURCES", "Run", "Settings", "filled", "lengths_of_slots"]

Floats = npt.NDArray[np.float64]
#: The least part of a slot that a run can end with; well above what rounding makes of a boundary.
LEAST_PART = 1e-4


def lengths_of_slots(slots: int, last_part: float) -> Floats:
    """Return how much of each slot a run took, in slots: 1, and ``last_part`` of the last one."""
    lengths = np.ones(slots)
    lengths[-1] = last_part
    return lengths


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
    ``stages`` are the slots at whose end a stage ended, rising, the last one the number of slots; without any, the
    whole is one stage. ``last_part`` is the part of the last slot that had passed when the run ended.

    Raises:
        ValueError: arrays of different shapes or without a measured slot, numbers below 0 or not finite, a slot that
            was measured in part, ends that do not rise to the number of slots, a last part below
            :data:`LEAST_PART` or above 1.
    """

    settings: Settings
    mean: Floats
    peak: Floats
    stages: tuple[int, ...] = ()
    last_part: float = 1.0

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
        if not LEAST_PART <= self.last_part <= 1:
            raise ValueError(f"the last slot is {self.last_part:g} of a slot, which is not from {LEAST_PART:g} to 1")
        ends = (0, *(self.stages or (self.mean.shape[1],)))
        if ends[-1] != self.mean.shape[1] or any(b <= a for a, b in pairwise(ends)):
            raise ValueError(f"stages end at {self.stages}, which does not rise to {self.mean.shape[1]} slots")

    @property
    def measured(self) -> npt.NDArray[np.bool_]:
        """Return for each slot whether it was measured."""
        measured: npt.NDArray[np.bool_] = ~np.isnan(self.mean[0])
        return measured

    @property
    def slot_lengths(self) -> Floats:
        """Return how much of each slot the run took."""
        return lengths_of_slots(self.mean.shape[1], self.last_part)

    @property
    def duration_slots(self) -> float:
        """Return how long the run took, in slots."""
        return int(self.mean.shape[1]) - 1 + self.last_part

    @property
    def total(self) -> Floats:
        """Return what was used in all of each resource, as amounts × slots; a gap counts as the mean of the rest."""
        lengths = self.slot_lengths[self.measured]
        used: Floats = self.mean[:, self.measured] @ lengths
        total: Floats = used * (self.duration_slots / lengths.sum())
        return total

    @property
    def ends(self) -> tuple[float, ...]:
        """Return where its stages end, at least one, in slots: the last one where the run does."""
        return (*self.stages[:-1], self.duration_slots)

    @property
    def lengths(self) -> Floats:
        """How long each stage took, in slots."""
        return np.diff(self.ends, prepend=0.0)

    def as_one_stage(self) -> Run:
        """The same, where others have another number of stages."""
        return replace(self, stages=())


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """The demand of an executor over time; arrays are resources × slots.

    ``low`` and ``high`` bound the mean in each slot as far as former runs tell. ``stages`` and ``last_part`` are as in
    :class:`Run`.
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
    last_part: float = 1.0

    @property
    def slots(self) -> int:
        """Return how many slots it has, the last one in part."""
        return int(self.mean.shape[1])

    @property
    def duration_slots(self) -> float:
        """Return how long it will take, in slots."""
        return self.slots - 1 + self.last_part

    @property
    def total(self) -> Floats:
        """Return what will be used in all of each resource, as amounts × slots."""
        total: Floats = self.mean @ lengths_of_slots(self.slots, self.last_part)
        return total


def filled(usage: Floats) -> Floats:
    """Return usage without gaps: on a straight line between the measured slots beside each; at an end as the nearest.

    At least one slot was measured.
    """
    measured = ~np.isnan(usage[0])
    if measured.all():
        return usage
    at = np.arange(usage.shape[1])
    return np.array([np.interp(at, at[measured], row[measured]) for row in usage])
