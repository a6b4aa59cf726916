"""One frozen sample of the host per tick; every decision of that tick uses it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """The use of one container. Rates are means since the previous sample."""

    cpu_cores: float = 0.0
    memory_bytes: int = 0  # working set: without the page cache that the kernel would drop first
    memory_cache_bytes: int = 0  # page cache that can be reclaimed, within the working set and outside
    memory_unreclaimable_bytes: int = 0  # all the rest of its memory
    memory_peak_bytes: int = 0
    disk_bytes_per_s: float = 0.0
    network_send_bytes_per_s: float = 0.0
    network_receive_bytes_per_s: float = 0.0
    pids: int = 0
    oom_kills: int = 0
    memory_high_events: int = 0
    cpu_seconds: float = 0.0
    cpu_throttled: float = 0.0  # fraction of the time for which cpu.max throttled it
    cpu_stalled: float = 0.0  # fraction of the time for which at least one of its tasks waited for a processor (PSI)
    memory_stalled: float = 0.0  # … for memory
    disk_stalled: float = 0.0  # … for a disk


@dataclass(frozen=True, slots=True)
class HostUse:
    """The use of the whole host. ``disk_busy`` and ``network_busy`` are the busiest device's fraction of time or of its
    link's rate; None if unknown.
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
