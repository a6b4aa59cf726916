"""``cpu.*``: bandwidth, weight, the idle class, usage, pressure."""

from __future__ import annotations

from agent.cgroups.files import Flag, FlatKeyed, Interface, Number, StalledTime, V2Controller

#: 100 ms is the kernel's default; after a cut it throttles for the first time within 21–50 ms (docs/kernel.md).
PERIOD_US = 100_000
#: The kernel refuses lower quotas with EINVAL (kernel/sched/core.c, min_cfs_quota_period).
MIN_QUOTA_US = 1_000


class CpuMax(Interface):
    """``$MAX $PERIOD`` in µs ↔ cores, or None for no limit."""

    def sanitize_get(self, value: str) -> float | None:
        """Parse the kernel's text."""
        quota, period = value.split()
        return None if quota == "max" else int(quota) / int(period)

    def sanitize_set(self, value: float | None) -> str:
        """Format a value for the kernel."""
        quota = "max" if value is None else round(value * PERIOD_US)
        return f"{quota} {PERIOD_US}"


def enforceable_cores(cores: float | None) -> float | None:
    """Round to what ``cpu.max`` can express: whole µs of a period, and at least the kernel's minimum."""
    return None if cores is None else max(MIN_QUOTA_US, round(cores * PERIOD_US)) / PERIOD_US


class Burst(Interface):
    """µs ↔ seconds of CPU time that may accumulate, at most the quota."""

    def sanitize_get(self, value: str) -> float:
        """Parse the kernel's text."""
        return int(value) / 1e6

    def sanitize_set(self, value: float) -> str:
        """Format a value for the kernel."""
        return str(round(value * 1e6))


def enforceable_burst_s(burst_s: float | None, cores: float | None) -> float:
    """Round to whole µs, and to at most one period's quota (kernel/sched/core.c, tg_set_cfs_bandwidth)."""
    burst_us = round((burst_s or 0.0) * 1e6)
    quota = enforceable_cores(cores)
    return (burst_us if quota is None else min(burst_us, round(quota * PERIOD_US))) / 1e6


class CpuFiles(V2Controller):
    """The cpu controller. ``cpu.stat`` has usage even where the controller is not enabled (4.15)."""

    max = CpuMax("cpu.max")  # 4.15
    burst = Burst("cpu.max.burst")  # 5.14
    weight = Number("cpu.weight")  # 4.15
    idle = Flag("cpu.idle")  # 5.15; while it is 1, cpu.weight reads 0 and cannot be written
    stat = FlatKeyed("cpu.stat")
    stalled_us = StalledTime("cpu.pressure")  # 4.20; time throttled by cpu.max counts as pressure, too
