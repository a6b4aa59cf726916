"""``memory.*``: limits, use, events."""

from __future__ import annotations

import resource

from cgroupspy.interfaces import FlagFile

from agent.cgroups.files import FlatKeyed, MaxOrInteger, Number, V2Controller

#: The kernel rounds limits down to pages.
PAGE_BYTES = resource.getpagesize()


class MemoryFiles(V2Controller):
    """The memory controller."""

    high = MaxOrInteger("memory.high")
    max = MaxOrInteger("memory.max")
    swap_max = MaxOrInteger("memory.swap.max")
    # Off, as the kernel has it: a parent that outlives its child's OOM can report it (docs/kernel.md).
    oom_group = FlagFile("memory.oom.group")  # 4.19
    current = Number("memory.current", readonly=True)
    peak = Number("memory.peak", readonly=True)  # 5.19
    stat = FlatKeyed("memory.stat")
    events = FlatKeyed("memory.events")
    events_local = FlatKeyed("memory.events.local")  # 5.2
