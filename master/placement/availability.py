"""Nodes' reported availability, less later assignments, as the arrays that executors are placed by.

All arrays have the resources of :data:`master.placement.executors.RESOURCES`, then slots from now on; units are cores,
bytes/s, bytes/s, bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from master.placement.drr import Floats, Ints
from master.placement.executors import RESOURCES
from penstock.model import Profile
from penstock.wire.master_api import SlotAmounts

#: Factors of the wire's units: cores/1000, KiB/s, KiB/s, MiB.
_UNITS = np.array([1e-3, 1024.0, 1024.0, float(2**20)])
#: Capacity and availability of an unknown resource. The availability exceeds any demand, so no executor is kept out,
#: and is a tiny fraction of the capacity, so that DRR, the largest remaining fraction, is decided by the other
#: resources.
UNKNOWN, UNKNOWN_AVAILABLE = 1e36, 1e21
#: Largest number of a slot that is computed: it bounds the times in an agent's report, which may be of any size.
_MOST_SLOTS = 1e9
#: Tolerance for boundaries that rounding moves off a multiple of a slot.
_ROUNDING = 1e-6

_GAP = (math.nan,) * len(RESOURCES)

Reduce = Callable[[Floats, Floats], Floats]


def amounts(slots: Sequence[SlotAmounts | None]) -> Floats:
    """Return slots in the wire's units as an array; an unmeasured slot is NaN."""
    values: Floats = (np.array([slot or _GAP for slot in slots], dtype=float) * _UNITS).T
    return values


def over(values: Floats, slot_s: float, elapsed_s: float, to_s: float, slots: int, reduce: Reduce) -> Floats:
    """Convert values per slot of ``slot_s`` that began ``elapsed_s`` ago to ``slots`` slots of ``to_s`` from now on.

    Each new slot has the least or the most (``reduce``) of the old slots it overlaps. After the last old slot, its
    values continue; the last new slot covers all later time.
    """
    had = values.shape[1]
    first, last = overlapped(elapsed_s + to_s * np.arange(slots, dtype=np.float64), slot_s, to_s, had)
    found = values[:, first]
    for step in range(1, int((last - first).max(initial=0)) + 1):
        found = reduce(found, values[:, np.minimum(first + step, last)])
    for beyond in range(int(last[-1]) + 1, had):
        found[:, -1] = reduce(found[:, -1], values[:, beyond])
    return found


def overlapped(elapsed_s: Floats, slot_s: Floats | float, for_s: float, slots: Ints | int) -> tuple[Ints, Ints]:
    """Return the first and the last slot, of so many of ``slot_s``, that overlap ``for_s`` seconds which begin
    ``elapsed_s`` after the first slot; all later time belongs to the last slot.
    """
    with np.errstate(over="ignore"):
        begins = np.minimum(elapsed_s / slot_s, _MOST_SLOTS)
        ends = np.minimum(begins + for_s / slot_s, _MOST_SLOTS)
    first = np.minimum(np.floor(begins + _ROUNDING).astype(np.intp), slots - 1)
    last = np.minimum(np.ceil(ends - _ROUNDING).astype(np.intp) - 1, slots - 1)
    return first, np.maximum(first, last)


def lasting(profile: Profile) -> bool:
    """Return whether the profile holds until the executor ends, at any time: a single slot, like reserved bounds."""
    return profile.slots == 1


def slots_of(profile: Profile, to_s: float) -> int:
    """Return the number of slots of ``to_s`` that the profile takes."""
    return max(1, math.ceil(profile.slots * profile.slot_s / to_s - _ROUNDING))


def demand(profile: Profile, to_s: float, slots: int) -> Floats:
    """Return RD(i) of an executor that starts now, in slots of ``to_s``: all ``slots`` of them for a lasting
    profile.
    """
    wanted = slots if lasting(profile) else min(slots, slots_of(profile, to_s))
    return over(_values(profile), profile.slot_s, 0.0, to_s, wanted, np.maximum)


def rest_of(profile: Profile, elapsed_s: float, to_s: float, slots: int) -> Floats:
    """Return the remaining demand of an executor that was sent ``elapsed_s`` ago; 0 after its end."""
    values = _values(profile)
    if not lasting(profile):
        values = np.concatenate((values, np.zeros((len(RESOURCES), 1))), axis=1)
    return over(values, profile.slot_s, elapsed_s, to_s, slots, np.maximum)


def end_in(profile: Profile, elapsed_s: float, to_s: float, slots: int) -> int:
    """Return the slots until the end of an executor that was sent ``elapsed_s`` ago; all slots where the end is
    unknown.
    """
    left_s = profile.slots * profile.slot_s - elapsed_s
    if left_s <= 0 or lasting(profile):
        return slots
    return min(slots, max(1, math.ceil(left_s / to_s - _ROUNDING)))


def _values(profile: Profile) -> Floats:
    """Return resources × slots of the profile; 0 for resources it does not name."""
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
