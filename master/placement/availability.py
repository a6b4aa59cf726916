"""What nodes say is available, and what was given away since, as the arrays that executors are placed by.

All arrays have the resources of :data:`master.placement.executors.RESOURCES`, then slots from now on; units are cores,
bytes/s, bytes/s, bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from master.placement.drr import Floats
from master.placement.executors import RESOURCES
from penstock.model import Profile
from penstock.wire.master_api import SlotAmounts

#: From what is said on the wire: cores/1000, KiB/s, KiB/s, MiB.
_UNITS = np.array([1e-3, 1024.0, 1024.0, float(2**20)])
#: Of what nobody knows there is so much, and so much of it is available: more than anybody wants, so nobody is kept
#: out, and next to nothing of what there is, so that DRR, the largest fraction that remains, looks at the others.
UNKNOWN, UNKNOWN_AVAILABLE = 1e36, 1e21
#: Boundaries that rounding puts a hair beside a multiple of a slot.
_ROUNDING = 1e-6

_GAP = (math.nan,) * len(RESOURCES)

Reduce = Callable[[Floats, Floats], Floats]


def amounts(slots: Sequence[SlotAmounts | None]) -> Floats:
    """Return slots as they come over the wire; one that was not measured is NaN."""
    values: Floats = (np.array([slot or _GAP for slot in slots], dtype=float) * _UNITS).T
    return values


def over(values: Floats, slot_s: float, elapsed_s: float, to_s: float, slots: int, reduce: Reduce) -> Floats:
    """Values per slot of ``slot_s`` that began ``elapsed_s`` ago, in ``slots`` slots of ``to_s`` from now on.

    Each new slot has the least, or the most, of what it reaches over (``reduce``). Behind its last slot everything
    stays as it is there, and the last new one counts all that is to come.
    """
    had = values.shape[1]
    begins = (elapsed_s + to_s * np.arange(slots)) / slot_s
    first = np.minimum(np.floor(begins + _ROUNDING).astype(int), had - 1)
    last = np.minimum(np.ceil(begins + to_s / slot_s - _ROUNDING).astype(int) - 1, had - 1)
    found = values[:, first]
    for step in range(1, int((last - first).max(initial=0)) + 1):
        found = reduce(found, values[:, np.minimum(first + step, last)])
    for beyond in range(int(last[-1]) + 1, had):
        found[:, -1] = reduce(found[:, -1], values[:, beyond])
    return found


def lasting(profile: Profile) -> bool:
    """Whether it holds until the executor ends, whenever that is: one slot, as bounds are reserved."""
    return profile.slots == 1


def slots_of(profile: Profile, to_s: float) -> int:
    """How many slots of ``to_s`` it takes."""
    return max(1, math.ceil(profile.slots * profile.slot_s / to_s - _ROUNDING))


def demand(profile: Profile, to_s: float, slots: int) -> Floats:
    """RD(i) of an executor that starts now, in slots of ``to_s``: all ``slots`` of them where it is lasting."""
    wanted = slots if lasting(profile) else min(slots, slots_of(profile, to_s))
    return over(_values(profile), profile.slot_s, 0.0, to_s, wanted, np.maximum)


def rest_of(profile: Profile, elapsed_s: float, to_s: float, slots: int) -> Floats:
    """What an executor that was sent ``elapsed_s`` ago takes from now on; nothing behind its end."""
    values = _values(profile)
    if not lasting(profile):
        values = np.concatenate((values, np.zeros((len(RESOURCES), 1))), axis=1)
    return over(values, profile.slot_s, elapsed_s, to_s, slots, np.maximum)


def end_in(profile: Profile, elapsed_s: float, to_s: float, slots: int) -> int:
    """Slots until an executor ends that was sent ``elapsed_s`` ago; all of them where nobody knows when."""
    left_s = profile.slots * profile.slot_s - elapsed_s
    return min(slots, math.ceil(left_s / to_s - _ROUNDING)) if left_s > 0 and not lasting(profile) else slots


def _values(profile: Profile) -> Floats:
    """Resources × its slots; 0 of what it does not name."""
    series: tuple[Sequence[float], ...] = (
        profile.cpu_cores,
        profile.disk_bytes_per_s,
        profile.network_bytes_per_s,
        profile.memory_bytes,
    )
    values = np.zeros((len(RESOURCES), profile.slots))
    for row, named in zip(values, series, strict=True):
        if named:
            row[: len(named)] = named
            row[len(named) :] = named[-1]
    return values
