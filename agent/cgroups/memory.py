"""``memory.*``: limits, use, events."""

from __future__ import annotations

from agent.cgroups.files import FlatKeyed, MaxOrInteger, V2Controller, Word

#: The kernel rounds limits down to pages.
PAGE_BYTES = 4096


class MemoryFiles(V2Controller):
    """The memory controller."""

    high = MaxOrInteger("memory.high")
    max = MaxOrInteger("memory.max")
    swap_max = MaxOrInteger("memory.swap.max")
    oom_group = Word("memory.oom.group")  # 4.19
    current = Word("memory.current", readonly=True)
    peak = Word("memory.peak", readonly=True)  # 5.19
    stat = FlatKeyed("memory.stat")
    events = FlatKeyed("memory.events")
