"""The use of the whole host, from /proc and psutil."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import psutil

from agent.core.snapshot import HostUse
from agent.monitor.counters import CpuTime, DiskCounters, HostCounters

#: A link's rate, and whether it is up, is asked for so often, and when a link came or went: four system calls a link.
_LINKS_S = 30.0


class LinkFacts(Protocol):
    """What psutil.net_if_stats() reports of a link."""

    @property
    def isup(self) -> bool:
        """Whether the link is up."""
        ...

    @property
    def speed(self) -> int:
        """Its rate in Mbit/s; 0: unknown."""
        ...


@dataclass(frozen=True, slots=True)
class _Read:
    at: float
    cpu: CpuTime
    disks: dict[str, DiskCounters]
    links: dict[str, tuple[int, int]]


class HostMonitor:
    """Each :meth:`sample` returns the mean rates since the previous one.

    ``link_bytes_per_s`` is the capacity of each link; 0: the speed that the link reports.
    """

    def __init__(
        self, disks: Sequence[str], link_bytes_per_s: int = 0, counters: HostCounters | None = None,
        link_facts: Callable[[], Mapping[str, LinkFacts]] = psutil.net_if_stats,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._disks = frozenset(disks)
        self._link_bytes_per_s = link_bytes_per_s
        self._counters = counters or HostCounters()
        self._ask_links, self._clock = link_facts, clock
        self._link_facts: Mapping[str, LinkFacts] = {}
        self._asked_at, self._asked_for = float("-inf"), frozenset[str]()
        self._before = self._read()

    def sample(self) -> HostUse:
        """Return the rates since the previous call."""
        before, now = self._before, self._read()
        self._before = now
        seconds = max(now.at - before.at, 1e-3)
        memory_bytes, available_bytes = self._counters.memory_bytes()
        disks = [(before.disks.get(name, disk), disk) for name, disk in now.disks.items()]
        busy = [(disk.busy_ms - was.busy_ms) / (1000 * seconds) for was, disk in disks]
        received = {n: (b - before.links.get(n, (b, 0))[0]) / seconds for n, (b, _) in now.links.items()}
        sent = {n: (b - before.links.get(n, (0, b))[1]) / seconds for n, (_, b) in now.links.items()}
        return HostUse(
            cpu_percent=_percent(before.cpu, now.cpu),
            memory_used_bytes=memory_bytes - available_bytes,
            memory_total_bytes=memory_bytes,
            disk_read_bytes_per_s=sum(disk.read_bytes - was.read_bytes for was, disk in disks) / seconds,
            disk_write_bytes_per_s=sum(disk.write_bytes - was.write_bytes for was, disk in disks) / seconds,
            disk_busy=min(1.0, max(busy)) if busy else None,
            network_receive_bytes_per_s=sum(received.values()),
            network_send_bytes_per_s=sum(sent.values()),
            network_busy=_network_busy(received, sent, self._facts(now), self._link_bytes_per_s),
        )

    def _read(self) -> _Read:
        counters = self._counters
        return _Read(self._clock(), counters.cpu(), counters.disks(self._disks), counters.links())

    def _facts(self, now: _Read) -> Mapping[str, LinkFacts]:
        """Return the facts of the links, at most :data:`_LINKS_S` old."""
        names = frozenset(now.links)
        if names != self._asked_for or now.at - self._asked_at >= _LINKS_S:
            self._link_facts, self._asked_for, self._asked_at = self._ask_links(), names, now.at
        return self._link_facts


def _percent(before: CpuTime, now: CpuTime) -> float:
    """Return the busy part of all processors' time in percent; iowait may run backwards (proc_stat(5))."""
    busy, idle = max(0, now.busy - before.busy), max(0, now.idle - before.idle)
    return round(100 * busy / (busy + idle), 1) if busy + idle else 0.0


def _network_busy(
    received: Mapping[str, float], sent: Mapping[str, float], facts: Mapping[str, LinkFacts], link_bytes_per_s: int
) -> float | None:
    """Return the busiest link's share of its capacity; None if that is unknown (most virtual links report no speed)."""
    shares: list[float] = []
    for name, link in facts.items():
        bytes_per_s = link_bytes_per_s or link.speed * 1e6 / 8
        if link.isup and bytes_per_s > 0 and name in received and name != "lo":
            shares.append(max(received[name], sent[name]) / bytes_per_s)
    return max(shares) if shares else None
