"""``memory.*``: protection, limits, use, events, reclaim, pressure."""

from __future__ import annotations

import resource

from cgroupspy.interfaces import FlagFile

from agent.cgroups.files import FlatKeyed, MaxOrInteger, Number, OneKey, SomeKeys, StalledTime, V2Controller

#: The kernel rounds limits down to pages.
PAGE_BYTES = resource.getpagesize()


class MemoryFiles(V2Controller):
    """The memory controller. Protection (min, low) takes effect only as far as every ancestor has it too."""

    min = MaxOrInteger("memory.min")
    low = MaxOrInteger("memory.low")
    high = MaxOrInteger("memory.high")
    max = MaxOrInteger("memory.max")
    swap_max = MaxOrInteger("memory.swap.max")
    # Off by default: a parent that outlives its child's OOM can report it (docs/kernel.md).
    oom_group = FlagFile("memory.oom.group")  # 4.19
    reclaim = Number("memory.reclaim", writeonly=True)  # 5.19; EAGAIN if less could be reclaimed
    current = Number("memory.current", readonly=True)
    peak = Number("memory.peak", readonly=True)  # 5.19
    stat = SomeKeys("memory.stat", "anon", "active_file", "inactive_file", "file_dirty", "file_writeback")
    inactive_file = OneKey("memory.stat", "inactive_file")
    events = FlatKeyed("memory.events")
    stalled_us = StalledTime("memory.pressure")  # 4.20
