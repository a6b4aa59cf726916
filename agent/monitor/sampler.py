"""One snapshot per tick: every container's cgroup and the host, read once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from agent.cgroups import CgroupSample, CgroupTree
from agent.core.snapshot import ContainerUse, Snapshot
from agent.monitor.host import HostMonitor
from agent.monitor.processes import memory_of
from agent.network import Counters

_NO_TRAFFIC = Counters()


@dataclass(frozen=True, slots=True)
class _Read:
    at: float
    sample: CgroupSample
    traffic: Counters


class Sampler:
    """Keeps the previous counters, so that use comes out as rates."""

    def __init__(self, tree: CgroupTree | None, host: HostMonitor) -> None:
        self._tree = tree
        self._host = host
        self._before: dict[str, _Read] = {}
        self._last = Snapshot(at=time.monotonic(), interval_s=0.0)

    def sample(self, containers: Iterable[str], traffic: Mapping[str, Counters]) -> Snapshot:
        """Read everything; ``traffic`` is container → what went over the network. Who vanished is left out."""
        started = time.monotonic()
        uses: dict[str, ContainerUse] = {}
        fresh: dict[str, _Read] = {}
        for container in containers if self._tree is not None else ():
            sample = self._tree.get(container).sample() if self._tree is not None else None
            if sample is not None:
                read = _Read(time.monotonic(), sample, traffic.get(container, _NO_TRAFFIC))
                uses[container] = self._use(container, self._before.get(container, read), read)
                fresh[container] = read
        self._before = fresh
        self._last = Snapshot(at=started, interval_s=started - self._last.at, host=self._host.sample(), containers=uses)
        return self._last

    def look(self, containers: Iterable[str]) -> Snapshot:
        """The latest snapshot, with the containers' memory as it is now."""
        uses = dict(self._last.containers)
        for container in containers if self._tree is not None else ():
            sample = self._tree.get(container).sample(full=False) if self._tree is not None else None
            if sample is None:
                uses.pop(container, None)
                continue
            uses[container] = replace(
                uses.get(container, ContainerUse()),
                memory_bytes=self._memory_bytes(container, sample),
                memory_cache_bytes=sample.memory_cache_bytes,
            )
        return replace(self._last, containers=uses)

    def _use(self, container: str, before: _Read, now: _Read) -> ContainerUse:
        was, sample, seconds = before.sample, now.sample, now.at - before.at

        def rate(after: float, earlier: float) -> float:
            return max(0.0, after - earlier) / seconds if seconds > 0 else 0.0

        return ContainerUse(
            cpu_cores=rate(sample.cpu_usage_s, was.cpu_usage_s),
            memory_bytes=self._memory_bytes(container, sample),
            memory_cache_bytes=sample.memory_cache_bytes,
            memory_peak_bytes=sample.memory_peak_bytes,
            disk_bytes_per_s=rate(sample.io_read_bytes + sample.io_write_bytes, was.io_read_bytes + was.io_write_bytes),
            network_send_bytes_per_s=rate(now.traffic.sent_bytes, before.traffic.sent_bytes),
            network_receive_bytes_per_s=rate(now.traffic.received_bytes, before.traffic.received_bytes),
            pids=sample.pids,
            oom_kills=sample.oom_kills,
            memory_high_events=sample.memory_high_events,
            cpu_seconds=sample.cpu_usage_s,
            cpu_throttled=rate(sample.cpu_throttled_s, was.cpu_throttled_s),
            cpu_stalled=rate(sample.cpu_stalled_s, was.cpu_stalled_s),
            memory_stalled=rate(sample.memory_stalled_s, was.memory_stalled_s),
            disk_stalled=rate(sample.io_stalled_s, was.io_stalled_s),
        )

    def _memory_bytes(self, container: str, sample: CgroupSample) -> int:
        assert self._tree is not None
        if "memory" in self._tree.controllers:
            return sample.memory_working_set_bytes
        return memory_of(self._tree.get(container).path)
