"""One frozen sample of the host per tick; every decision of that tick uses it."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec


class ContainerUse(msgspec.Struct, frozen=True):
    """The use of one container; rates are means since the previous sample.

    ``memory_bytes`` is the working set: without the page cache that the kernel would drop first.
    ``memory_cache_bytes``: the page cache that can be reclaimed, within the working set and outside;
    ``memory_unreclaimable_bytes``: all the rest of its memory. ``cpu_throttled`` is the fraction of the time for which
    ``cpu.max`` throttled it; ``…_stalled`` that for which at least one of its tasks waited for a processor, for memory,
    or for a disk (PSI). ``memory_peak_bytes``, ``pids``, ``oom_kills`` and ``memory_high_events`` are for people only:
    they are at most four samples old, 64 while its processes sleep. The peak is never below the memory of the sample.
    ``…_stalled`` may be as old where no decision depends on them: of a container without promised cores or a profile,
    while no opportunistic work runs or waits on the node. Of other containers, too, they may be 64 samples old while
    the processes sleep, and so may ``memory_bytes`` on a host without a memory controller. A container that uses next
    to no CPU time may be overlooked for up to 16 samples; what it waited meanwhile counts for the sample that finds it.
    """

    cpu_cores: float = 0.0
    memory_bytes: int = 0
    memory_cache_bytes: int = 0
    memory_unreclaimable_bytes: int = 0
    memory_peak_bytes: int = 0
    disk_bytes_per_s: float = 0.0
    network_send_bytes_per_s: float = 0.0
    network_receive_bytes_per_s: float = 0.0
    pids: int = 0
    oom_kills: int = 0
    memory_high_events: int = 0
    cpu_seconds: float = 0.0
    cpu_throttled: float = 0.0
    cpu_stalled: float = 0.0
    memory_stalled: float = 0.0
    disk_stalled: float = 0.0


class HostUse(msgspec.Struct, frozen=True):
    """The use of the whole host. ``disk_busy`` and ``network_busy`` are the busiest device's fraction of time or of its
    link's rate; null if unknown.
    """

    cpu_percent: float = 0.0
    memory_used_bytes: int = 0
    memory_total_bytes: int = 0
    disk_read_bytes_per_s: float = 0.0
    disk_write_bytes_per_s: float = 0.0
    disk_busy: float | None = None
    network_receive_bytes_per_s: float = 0.0
    network_send_bytes_per_s: float = 0.0
    network_busy: float | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One sample: ``at`` is monotonic time in seconds, ``interval_s`` the time since the previous snapshot."""

    at: float
    interval_s: float
    host: HostUse = field(default_factory=HostUse)
    containers: dict[str, ContainerUse] = field(default_factory=dict)
