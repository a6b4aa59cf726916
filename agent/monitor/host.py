"""The use of the whole host, from psutil (/proc/stat, /proc/meminfo, /proc/diskstats, /proc/net/dev)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from agent.core.snapshot import HostUse


@dataclass(frozen=True, slots=True)
class _Counters:
    at: float
    read_bytes: int
    write_bytes: int
    busy_ms: dict[str, int]
    received_bytes: dict[str, int]
    sent_bytes: dict[str, int]


class HostMonitor:
    """Each :meth:`sample` returns the mean rates since the previous one.

    ``link_bytes_per_s`` is the capacity of each link; 0: the speed that the link reports.
    """

    def __init__(self, disks: Sequence[str], link_bytes_per_s: int = 0) -> None:
        self._disks = frozenset(disks)
        self._link_bytes_per_s = link_bytes_per_s
        self._before = self._read()
        psutil.cpu_percent(None)

    def sample(self) -> HostUse:
        """Return the rates since the previous call."""
        before, now = self._before, self._read()
        self._before = now
        seconds = max(now.at - before.at, 1e-3)
        memory = psutil.virtual_memory()
        busy = [(now.busy_ms[d] - before.busy_ms.get(d, 0)) / (1000 * seconds) for d in now.busy_ms]
        received = {n: (b - before.received_bytes.get(n, b)) / seconds for n, b in now.received_bytes.items()}
        sent = {n: (b - before.sent_bytes.get(n, b)) / seconds for n, b in now.sent_bytes.items()}
        return HostUse(
            cpu_percent=psutil.cpu_percent(None),
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            disk_read_bytes_per_s=(now.read_bytes - before.read_bytes) / seconds,
            disk_write_bytes_per_s=(now.write_bytes - before.write_bytes) / seconds,
            disk_busy=min(1.0, max(busy)) if busy else None,
            network_receive_bytes_per_s=sum(received.values()),
            network_send_bytes_per_s=sum(sent.values()),
            network_busy=_network_busy(received, sent, self._link_bytes_per_s),
        )

    def _read(self) -> _Counters:
        disks = psutil.disk_io_counters(perdisk=True) or {}
        ours = {name: disks[name] for name in self._disks if name in disks}
        links = psutil.net_io_counters(pernic=True)
        return _Counters(
            at=time.monotonic(),
            read_bytes=sum(d.read_bytes for d in ours.values()),
            write_bytes=sum(d.write_bytes for d in ours.values()),
            busy_ms={name: d.busy_time for name, d in ours.items()},
            received_bytes={name: link.bytes_recv for name, link in links.items()},
            sent_bytes={name: link.bytes_sent for name, link in links.items()},
        )


def _network_busy(received: dict[str, float], sent: dict[str, float], link_bytes_per_s: int) -> float | None:
    """Return the busiest link's share of its capacity; None if that is unknown (most virtual links report no speed)."""
    shares: list[float] = []
    for name, link in psutil.net_if_stats().items():
        bytes_per_s = link_bytes_per_s or link.speed * 1e6 / 8
        if link.isup and bytes_per_s > 0 and name in received and name != "lo":
            shares.append(max(received[name], sent[name]) / bytes_per_s)
    return max(shares) if shares else None
