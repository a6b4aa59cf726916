"""``cpu.*``: bandwidth, weight, the idle class, usage, pressure."""

from __future__ import annotations

from cgroupspy.interfaces import FlagFile

from agent.cgroups.files import FlatKeyed, Interface, Number, V2Controller
from agent.cgroups.stalls import PressureFile, StalledTime

#: 100 ms is the kernel's default; a cut first throttles after 21–50 ms with it (docs/kernel.md).
PERIOD_US = 100_000
#: Below this the kernel answers EINVAL (kernel/sched/core.c, min_cfs_quota_period).
MIN_QUOTA_US = 1_000
#: What cpu.weight is where nobody set it.
DEFAULT_WEIGHT = 100


class CpuMax(Interface):
    """``$MAX $PERIOD`` in µs ↔ cores, or None for no limit."""

    def sanitize_get(self, value: str) -> float | None:
        """From the kernel."""
        quota, period = value.split()
        return None if quota == "max" else int(quota) / int(period)

    def sanitize_set(self, value: float | None) -> str:
        """To the kernel."""
        quota = "max" if value is None else round(value * PERIOD_US)
        return f"{quota} {PERIOD_US}"


def enforceable_cores(cores: float | None) -> float | None:
    """The nearest that ``cpu.max`` can say: whole µs of a period, and not fewer than the kernel takes."""
    return None if cores is None else max(MIN_QUOTA_US, round(cores * PERIOD_US)) / PERIOD_US


class Burst(Interface):
    """µs ↔ seconds of CPU time that may be saved up, at most the quota."""

    def sanitize_get(self, value: str) -> float:
        """From the kernel."""
        return int(value) / 1e6

    def sanitize_set(self, value: float) -> str:
        """To the kernel."""
        return str(round(value * 1e6))


def enforceable_burst_s(burst_s: float | None, cores: float | None) -> float:
    """Whole µs, and not more than one period's quota (kernel/sched/core.c, tg_set_cfs_bandwidth)."""
    burst_us = round((burst_s or 0.0) * 1e6)
    quota = enforceable_cores(cores)
    return (burst_us if quota is None else min(burst_us, round(quota * PERIOD_US))) / 1e6


class CpuFiles(V2Controller):
    """The cpu controller. ``cpu.stat`` has usage even where the controller is not enabled (4.15)."""

    max = CpuMax("cpu.max")  # 4.15
    burst = Burst("cpu.max.burst")  # 5.14
    weight = Number("cpu.weight")  # 4.15
    idle = FlagFile("cpu.idle")  # 5.15; while it is 1, cpu.weight reads 0 and cannot be written
    stat = FlatKeyed("cpu.stat")
    pressure = PressureFile("cpu.pressure")  # 4.20; time throttled by cpu.max counts as pressure, too
    stalled_us = StalledTime("cpu.pressure")
