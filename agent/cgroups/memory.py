"""``memory.*``: protection, limits, use, events, reclaim, pressure."""

from __future__ import annotations

import resource

from agent.cgroups.files import Flag, FlatKeyed, MaxOrInteger, Number, OneKey, SomeKeys, StalledTime, V2Controller

PAGE_BYTES = resource.getpagesize()


class Pages(MaxOrInteger):
    """A number of bytes, or None for no limit; the kernel rounds it down to pages."""

    @staticmethod
    def holds(wanted: int | None, found: int | None) -> bool:
        """Return whether the value read is the value wanted."""
        return found == wanted if wanted is None or found is None else 0 <= wanted - found < PAGE_BYTES


class MemoryFiles(V2Controller):
    """The memory controller. Protection (min, low) takes effect only as far as every ancestor has it too."""

    min = Pages("memory.min")
    low = Pages("memory.low")
    high = Pages("memory.high")
    max = Pages("memory.max")
    swap_max = MaxOrInteger("memory.swap.max")
    # Off by default: a parent that outlives its child's OOM can report it (docs/kernel.md).
    oom_group = Flag("memory.oom.group")  # 4.19
    reclaim = Number("memory.reclaim", writeonly=True)  # 5.19; EAGAIN if less could be reclaimed
    current = Number("memory.current", readonly=True)
    peak = Number("memory.peak", readonly=True)  # 5.19
    stat = SomeKeys("memory.stat", "anon", "active_file", "inactive_file", "file_dirty", "file_writeback")
    inactive_file = OneKey("memory.stat", "inactive_file")
    events = FlatKeyed("memory.events")
    stalled_us = StalledTime("memory.pressure")  # 4.20
