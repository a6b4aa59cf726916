"""``io.*``: limits per whole disk, statistics."""

from __future__ import annotations

from agent.cgroups.files import NestedKeyed, V2Controller


class IoFiles(V2Controller):
    """The io controller. ``io.max`` takes whole disks only: a partition gives ENODEV (docs/kernel.md)."""

    max = NestedKeyed("io.max")
    stat = NestedKeyed("io.stat", readonly=True)
