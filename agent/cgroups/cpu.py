"""``cpu.*``: bandwidth, weight, the idle class, usage."""

from __future__ import annotations

from agent.cgroups.files import FlatKeyed, Interface, V2Controller, Word

#: 100 ms is the kernel's default; a cut first throttles after 21–50 ms with it (docs/kernel.md).
PERIOD_US = 100_000
#: Below this the kernel answers EINVAL (kernel/sched/core.c, min_cfs_quota_period).
MIN_QUOTA_US = 1_000


class CpuMax(Interface):
    """``$MAX $PERIOD`` in µs ↔ cores, or None for no limit."""

    def sanitize_get(self, value: str) -> float | None:
        """From the kernel."""
        quota, period = value.split()
        return None if quota == "max" else int(quota) / int(period)

    def sanitize_set(self, value: float | None) -> str:
        """To the kernel."""
        return f"{'max' if value is None else quota_us(value)} {PERIOD_US}"


def quota_us(cores: float) -> int:
    """The quota of a period that gives this many cores."""
    return max(MIN_QUOTA_US, round(cores * PERIOD_US))


class CpuFiles(V2Controller):
    """The cpu controller. ``cpu.stat`` has usage even where the controller is not enabled (4.15)."""

    max = CpuMax("cpu.max")
    weight = Word("cpu.weight")
    idle = Word("cpu.idle")  # 5.15; while it is 1, cpu.weight reads 0 and cannot be written
    stat = FlatKeyed("cpu.stat")
