"""From what is forecast to what is promised: the profile that an executor's limits follow (Elasecutor §III.B.1a)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from master.prediction.runs import RESOURCES, Floats, Forecast, Settings
from penstock.model import Profile
from penstock.model.executor import Sizing

_CPU, _DISK, _NETWORK, _MEMORY = map(RESOURCES.index, ("cpu", "disk", "network", "memory"))
#: What an executor is promised at least of what its profile names: cores, bytes/s, bytes/s, bytes. Of a disk and of a
#: network where nothing was used: nothing (1 is the least that a profile can say). A floor would be kept from everybody
#: else, a third of a slow disk for each executor; that nothing stands still is the affair of the node's limits.
FLOORS = (0.05, 1.0, 1.0, float(16 * 2**20))
#: What an executor is promised of which neither a bound nor a run is known: Spark's default, too.
CORES_UNKNOWN = 1.0


@dataclass(frozen=True, slots=True)
class Promises:
    """``demand``: the ``peak`` or the ``mean`` of each slot, and ``headroom`` (a fraction) more.

    ``auto`` is the peak for an executor with hard limits, which would be throttled below it, and the mean for one with
    shared guarantees, which uses idle capacity beyond it (docs/spark.md has the figures).

    A resource whose total was missed on held-back runs by more than ``error``, or of which no run used anything, is not
    promised: CPU and memory are reserved at their bounds instead, disk and network are left out.
    """

    demand: Literal["auto", "peak", "mean"] = "auto"
    headroom: float = 0.05
    error: float = 0.3

    def of_peaks(self, sizing: Sizing) -> bool:
        """Return whether an executor with this sizing is promised the peaks of its slots."""
        return self.demand == "peak" or (self.demand == "auto" and sizing is Sizing.HARD)


def profile_of(
    forecast: Forecast, settings: Settings, slot_s: float, promises: Promises, sizing: Sizing = Sizing.HARD
) -> Profile:
    """The profile, in slots of ``slot_s`` seconds. A reservation has one slot, which holds until the end."""
    usage = forecast.peak if promises.of_peaks(sizing) or forecast.reservation else forecast.mean
    bounds = {_CPU: settings.cores, _MEMORY: float(settings.memory_bytes)}
    rows: dict[int, list[float]] = {}
    for resource, name in enumerate(RESOURCES):
        bound = bounds.get(resource, 0.0)
        unseen = not usage[resource].any()  # its hosts cannot measure that, or it never used any
        if forecast.reservation or unseen or forecast.errors.get(name, 0.0) > promises.error:
            rows[resource] = _reserved(resource, bound, usage[resource])
        else:
            rows[resource] = _bounded(usage[resource] * (1 + promises.headroom), FLOORS[resource], bound)
    if max(map(len, rows.values())) == 1 and forecast.slots > 1:  # nothing is promised over time
        stages: tuple[int, ...] = ()
    else:
        stages = forecast.stages if len(forecast.stages) > 1 else ()
    return Profile(
        slot_s=slot_s,
        cpu_cores=tuple(rows[_CPU]),
        memory_bytes=tuple(map(round, rows[_MEMORY])),
        disk_bytes_per_s=tuple(map(round, rows[_DISK])),
        network_bytes_per_s=tuple(map(round, rows[_NETWORK])),
        stages=stages,
    )


def _bounded(values: Floats, floor: float, bound: float) -> list[float]:
    """No value below the floor, none above the bound that was asked for (0: none was)."""
    return [round(min(max(value, floor), bound or math.inf), 4) for value in values.tolist()]


def _reserved(resource: int, bound: float, known: Floats) -> list[float]:
    """One value for the whole run: the bound, else the highest that is known; nothing of a disk or of a network."""
    if resource not in (_CPU, _MEMORY):
        return []
    highest = bound or float(known.max()) or (CORES_UNKNOWN if resource == _CPU else 0.0)
    return [highest] if highest > 0 else []
