"""One frozen sample of the host per tick; every decision of that tick reads it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """What one container uses. Rates are means since the previous sample."""

    cpu_cores: float = 0.0
    memory_bytes: int = 0  # working set: page cache that the kernel would drop first is not counted
    memory_cache_bytes: int = 0  # of the working set: what reclaim could take without ending anything
    memory_peak_bytes: int = 0
    disk_bytes_per_s: float = 0.0
    network_send_bytes_per_s: float = 0.0
    network_receive_bytes_per_s: float = 0.0
    pids: int = 0
    oom_kills: int = 0
    memory_high_events: int = 0
    cpu_seconds: float = 0.0
    cpu_throttled: float = 0.0  # share of the time in which cpu.max held it back
    cpu_stalled: float = 0.0  # share of the time in which some of it waited for a processor (PSI)
    memory_stalled: float = 0.0  # … for memory
    disk_stalled: float = 0.0  # … for a disk


@dataclass(frozen=True, slots=True)
class HostUse:
    """What the whole host uses. ``disk_busy`` and ``network_busy`` are the busiest device's share of time or of its
    link's rate; None where the host does not tell."""

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
    """``at`` is monotonic time in seconds, ``interval_s`` since the previous snapshot."""

    at: float
    interval_s: float
    host: HostUse = field(default_factory=HostUse)
    containers: dict[str, ContainerUse] = field(default_factory=dict)
