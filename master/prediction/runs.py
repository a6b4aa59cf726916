"""Runs and forecasts.

Arrays of usage have one row for each of :data:`RESOURCES`, then slots of equal length from the run's beginning: cores,
bytes/s, bytes/s, bytes. The last slot may be partial: the run takes the fraction ``last_part`` of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from master.placement.executors import RESOURCES
from penstock.model.units import counted

__all__ = ["Floats", "Forecast", "LEAST_PART", "RESOURCES", "Run", "Settings", "filled", "lengths_of_slots"]

Floats = npt.NDArray[np.float64]
#: The least fraction of a slot that a run can end with; well above rounding errors at a boundary.
LEAST_PART = 1e-4


def lengths_of_slots(slots: int, last_part: float) -> Floats:
    """Return the fraction of each slot that a run took: 1, and ``last_part`` for the last one."""
    lengths = np.ones(slots)
    lengths[-1] = last_part
    return lengths


@dataclass(frozen=True, slots=True)
class Settings:
    """The parameters known before a run of an application (Elasecutor §IV.C): the input's size, the bounds."""

    input_bytes: int
    cores: float
    memory_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One executor's run, or the mean of several executors of one run.

    ``mean`` and ``peak`` (resources × slots) are the mean and the maximum within each slot, for memory as for rates. An
    unmeasured slot, a gap, is NaN in both and for every resource; it counts as time and in no mean. ``stages`` are the
    slots at whose end a stage ended, rising, the last one the number of slots; if empty, the whole is one stage.
    ``last_part`` is the elapsed fraction of the last slot when the run ended.

    Raises: ValueError: arrays of different shapes or without a measured slot, numbers below 0 or not finite, a slot
    measured in part, ends that do not rise to the number of slots, a last part below :data:`LEAST_PART` or above 1.
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
            raise ValueError(
                f"stages end at {self.stages}, which does not rise to {counted(self.mean.shape[1], 'slot')}"
            )

    @property
    def measured(self) -> npt.NDArray[np.bool_]:
        """Return for each slot whether it was measured."""
        measured: npt.NDArray[np.bool_] = ~np.isnan(self.mean[0])
        return measured

    @property
    def slot_lengths(self) -> Floats:
        """Return the fraction of each slot that the run took."""
        return lengths_of_slots(self.mean.shape[1], self.last_part)

    @property
    def duration_slots(self) -> float:
        """Return the run's duration in slots."""
        return int(self.mean.shape[1]) - 1 + self.last_part

    @property
    def total(self) -> Floats:
        """Return the total use of each resource, as amounts × slots; a gap counts as the mean of the rest."""
        lengths = self.slot_lengths[self.measured]
        used: Floats = self.mean[:, self.measured] @ lengths
        total: Floats = used * (self.duration_slots / lengths.sum())
        return total

    @property
    def ends(self) -> tuple[float, ...]:
        """Return the ends of its stages, at least one, in slots: the last one at the run's end."""
        return (*self.stages[:-1], self.duration_slots)

    @property
    def lengths(self) -> Floats:
        """Return the length of each stage, in slots."""
        return np.diff(self.ends, prepend=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """The demand of an executor over time; arrays are resources × slots.

    ``low`` and ``high`` bound the mean in each slot, based on former runs. ``stages`` and ``last_part`` are as in
    :class:`Run`. ``by`` names the predictor, ``error`` is its relative error on held-back runs (NaN: there were none),
    and ``errors`` the same for each resource's total. ``reservation``: nothing is forecast, these are bounds.
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
        """Return the number of slots; the last may be partial."""
        return int(self.mean.shape[1])

    @property
    def duration_slots(self) -> float:
        """Return the duration in slots."""
        return self.slots - 1 + self.last_part

    @property
    def total(self) -> Floats:
        """Return the total use of each resource, as amounts × slots."""
        total: Floats = self.mean @ lengths_of_slots(self.slots, self.last_part)
        return total


def filled(usage: Floats) -> Floats:
    """Return usage with gaps interpolated linearly between measured slots; at either end the nearest value is used.

    At least one slot is measured.
    """
    measured = ~np.isnan(usage[0])
    if measured.all():
        return usage
    at = np.arange(usage.shape[1])
    return np.array([np.interp(at, at[measured], row[measured]) for row in usage])
