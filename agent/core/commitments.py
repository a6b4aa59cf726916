"""The resources held for a node's executors over time: step functions and their sum (AR(j) of Elasecutor §III.B.1).

Times are in seconds on the clock of ``now``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent.core.plans import Floats, Plan
from penstock.model.resource_vector import ResourceVector

#: Slot boundaries closer than this are the same; they differ by rounding only.
_SAME_S = 1e-4


@dataclass(frozen=True, slots=True)
class Steps:
    """Amounts ``held`` (times × resources) from each of ``times`` (rising) to the next; the last one holds for ever."""

    times: Floats
    held: Floats

    def at(self, now: float) -> ResourceVector:
        """Return the amounts held now."""
        return ResourceVector._make(self.values(np.array([now]))[0].tolist())

    def peak(self, now: float) -> ResourceVector:
        """Return the maximum of each resource at any time from now on."""
        first = self._index(np.array([now]))[0]
        return ResourceVector._make(self.held[first:].max(axis=0).tolist())

    def slots(self, now: float, slot_s: float, most: int) -> Floats:
        """Return the maximum of each resource per slot of ``slot_s`` from now on; the last slot holds for ever."""
        ahead_s = float(self.times[-1]) - now - _SAME_S
        count = min(most, 1 + max(0, int(np.ceil(ahead_s / slot_s))))
        begins = now + slot_s * np.arange(count)
        nearest = begins[np.clip(np.rint((self.times - now) / slot_s), 0, count - 1).astype(np.intp)]
        snapped = np.where(np.abs(self.times - nearest) <= _SAME_S, nearest, self.times)
        grid = np.union1d(snapped[snapped > now], begins)
        held = self.held[np.maximum(np.searchsorted(snapped, grid, "right") - 1, 0)]
        most_held: Floats = np.maximum.reduceat(held, np.searchsorted(grid, begins), axis=0)
        return most_held

    def over(self, free: ResourceVector, wanted: Steps) -> tuple[int, float] | None:
        """Return the first ``wanted`` resource of which more is held than free, and the time from which that is so."""
        late, which = np.nonzero((self.held > np.array(free)) & (wanted.values(self.times) > 0))
        return (int(which[0]), float(self.times[late[0]])) if len(late) else None

    def values(self, times: Floats) -> Floats:
        """Return the amounts held at each of these times."""
        held: Floats = self.held[self._index(times)]
        return held

    def _index(self, times: Floats) -> npt.NDArray[np.intp]:
        return np.maximum(np.searchsorted(self.times, times + _SAME_S, "right") - 1, 0)


def steps(plan: Plan, constant: ResourceVector, now: float) -> Steps:
    """Return a plan as steps, plus the amounts ``constant`` over time."""
    held = np.array(plan.amounts, dtype=np.float64) + np.array(constant)
    return Steps(now - plan.elapsed_s + plan.slot_s * np.arange(len(held), dtype=np.float64), held)


def total(plans: Iterable[Steps], now: float) -> Steps:
    """Return the sum of plans from now on."""
    known = list(plans)
    boundaries = np.sort(np.concatenate([[now], *(plan.times[plan.times > now] for plan in known)]))
    times = boundaries[np.diff(boundaries, prepend=-np.inf) > _SAME_S]
    held = np.zeros((len(times), 4))
    for plan in known:
        held += plan.values(times)
    return Steps(times, held)
