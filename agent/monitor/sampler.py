"""One snapshot per tick: every container's cgroup and the host, read once."""

from __future__ import annotations

import time
from collections.abc import Iterable

from agent.cgroups import CgroupSample, CgroupTree
from agent.core.snapshot import ContainerUse, Snapshot
from agent.monitor.host import HostMonitor
from agent.monitor.processes import memory_of


class Sampler:
    """Keeps the previous counters, so that use comes out as rates."""

    def __init__(self, tree: CgroupTree | None, host: HostMonitor) -> None:
        self._tree = tree
        self._host = host
        self._before: dict[str, tuple[float, CgroupSample]] = {}
        self._at = time.monotonic()

    def sample(self, containers: Iterable[str]) -> Snapshot:
        """Read everything. Containers that vanished meanwhile are left out."""
        started = time.monotonic()
        uses: dict[str, ContainerUse] = {}
        fresh: dict[str, tuple[float, CgroupSample]] = {}
        if self._tree is not None:
            for container in containers:
                use = self._container(self._tree, container, fresh)
                if use is not None:
                    uses[container] = use
        self._before = fresh
        interval_s, self._at = started - self._at, started
        return Snapshot(at=started, interval_s=interval_s, host=self._host.sample(), containers=uses)

    def _container(
        self, tree: CgroupTree, container: str, fresh: dict[str, tuple[float, CgroupSample]]
    ) -> ContainerUse | None:
        cgroup = tree.get(container)
        sample = cgroup.sample()
        if sample is None:
            return None
        now = time.monotonic()
        fresh[container] = (now, sample)
        before_at, before = self._before.get(container, (now, sample))
        seconds = now - before_at
        memory_bytes = sample.memory_working_set_bytes
        if "memory" not in tree.controllers:
            memory_bytes = memory_of(cgroup.path)
        moved = sample.io_read_bytes + sample.io_write_bytes - before.io_read_bytes - before.io_write_bytes
        return ContainerUse(
            cpu_cores=(sample.cpu_usage_s - before.cpu_usage_s) / seconds if seconds > 0 else 0.0,
            memory_bytes=memory_bytes,
            memory_peak_bytes=sample.memory_peak_bytes,
            disk_bytes_per_s=moved / seconds if seconds > 0 else 0.0,
            pids=sample.pids,
            oom_kills=sample.oom_kills,
            memory_high_events=sample.memory_high_events,
            cpu_seconds=sample.cpu_usage_s,
        )
