"""From forecast to promise: the profile that an executor's limits follow (Elasecutor §III.B.1a)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from master.prediction.runs import RESOURCES, Floats, Forecast, Settings
from penstock.model import Profile
from penstock.model.executor import Sizing

_CPU, _DISK, _NETWORK, _MEMORY = map(RESOURCES.index, ("cpu", "disk", "network", "memory"))
#: The least promise for each resource in a profile: cores, bytes/s, bytes/s, bytes. For an unused disk or network it is
#: nothing (1 is the smallest value in a profile). A larger floor would be withheld from all other work, a third of a
#: slow disk for each executor; the node's limits ensure that no executor stalls.
FLOORS = (0.05, 1.0, 1.0, float(16 * 2**20))
#: The promise to an executor with neither a bound nor a known run: Spark's default, too.
CORES_UNKNOWN = 1.0


@dataclass(frozen=True, slots=True)
class ReservedSlots:
    """``demand``: the ``peak`` or the ``mean`` of each slot, increased by ``headroom`` (a fraction).

    ``auto`` is the peak for an executor with hard limits, which would be throttled below it, and the mean for one with
    shared guarantees, which uses idle capacity beyond it (docs/benchmarks/spark.md has the figures).

    A resource whose total had an error above ``error`` on held-back runs, or that no run used, is not promised by
    profile: CPU and memory are reserved at their bounds instead, disk and network are left out.
    """

    demand: Literal["auto", "peak", "mean"] = "auto"
    headroom: float = 0.05
    error: float = 0.3

    def of_peaks(self, sizing: Sizing) -> bool:
        """Return whether an executor with this sizing is promised the peaks of its slots."""
        return self.demand == "peak" or (self.demand == "auto" and sizing is Sizing.HARD)


def profile_of(
    forecast: Forecast, settings: Settings, slot_s: float, promises: ReservedSlots, sizing: Sizing = Sizing.HARD
) -> Profile:
    """Return the profile, in slots of ``slot_s`` seconds. A reservation has one slot, which holds until the end."""
    usage = forecast.peak if promises.of_peaks(sizing) or forecast.reservation else forecast.mean
    bounds = {_CPU: settings.cores, _MEMORY: float(settings.memory_bytes)}
    rows: dict[int, list[float]] = {}
    for resource, name in enumerate(RESOURCES):
        bound = bounds.get(resource, 0.0)
        unseen = not usage[resource].any()  # its hosts cannot measure it, or it was never used
        if forecast.reservation or unseen or forecast.errors.get(name, 0.0) > promises.error:
            rows[resource] = _reserved(resource, bound, usage[resource])
        else:
            rows[resource] = _bounded(usage[resource] * (1 + promises.headroom), FLOORS[resource], bound)
    if max(map(len, rows.values())) == 1 and forecast.slots > 1:  # no promise varies over time
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
    """Clip values to at least the floor and at most the requested bound (0: none)."""
    return [round(min(max(value, floor), bound or math.inf), 4) for value in values.tolist()]


def _reserved(resource: int, bound: float, known: Floats) -> list[float]:
    """Return one value for the whole run: the bound, or else the highest known value; nothing for disk or network."""
    if resource not in (_CPU, _MEMORY):
        return []
    highest = bound or float(known.max()) or (CORES_UNKNOWN if resource == _CPU else 0.0)
    return [highest] if highest > 0 else []
