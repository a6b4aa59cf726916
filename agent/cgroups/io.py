"""``io.*``: limits per disk, weights, statistics, pressure."""

from __future__ import annotations

from agent.cgroups.files import Interface, NestedKeyed, StalledTime, V2Controller


class Weight(Interface):
    """``default 100``, and lines for single disks, which stay unchanged. bfq may write the number alone."""

    def sanitize_get(self, value: str) -> int:
        """Parse the kernel's text."""
        words = value.split()
        return int(words[1] if words[0] == "default" else words[0])

    def sanitize_set(self, value: int) -> str:
        """Format a value for the kernel."""
        return f"default {int(value)}"


class CostEnabled(Interface):
    """``254:0 enable=1 ctrl=auto rpct=95.00 …`` → the devices for which io.cost is enabled."""

    readonly = True

    def sanitize_get(self, value: str) -> frozenset[str]:
        """Parse the kernel's text."""
        return frozenset(line.split()[0] for line in value.splitlines() if "enable=1" in line.split())


class IoFiles(V2Controller):
    """The io controller. ``io.max`` takes whole disks only: a partition gives ENODEV (docs/kernel-disks.md).

    :func:`agent.cgroups.weight.io_weight_works` tells which of the weights has an effect, and where.
    """

    max = NestedKeyed("io.max")
    stat = NestedKeyed("io.stat", readonly=True)
    weight = Weight("io.weight")  # io.cost's, 5.4 (CONFIG_BLK_CGROUP_IOCOST)
    bfq_weight = Weight("io.bfq.weight")  # 5.0, with the module bfq
    cost_enabled = CostEnabled("io.cost.qos")  # 5.4, only at the root of the hierarchy
    stalled_us = StalledTime("io.pressure")  # 4.20
