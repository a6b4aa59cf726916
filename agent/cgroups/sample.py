"""The counters of one cgroup, read together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from agent.cgroups.core import CoreFiles, PidsFiles
from agent.cgroups.cpu import CpuFiles
from agent.cgroups.cpuset import CpusetFiles
from agent.cgroups.files import V2Controller
from agent.cgroups.filesystem import PASSING, Filesystem, Gone
from agent.cgroups.io import IoFiles
from agent.cgroups.memory import MemoryFiles

#: Files that are read repeatedly, and so are kept open.
COUNTERS = frozenset(
    b"cpu.stat cpu.pressure memory.current memory.stat memory.events memory.peak memory.pressure io.stat io.pressure "
    b"pids.current".split()
)


class CgroupSample(Struct, frozen=True):
    """Counters of one cgroup and those below it; zero if the controller or the file is missing.

    ``memory_working_set_bytes`` excludes the page cache that the kernel drops first (memory.stat's inactive_file);
    ``memory_cache_bytes`` is reclaimable: all page cache that is neither dirty, mlocked nor shmem. ``…_stalled_s`` is
    the time during which at least one task was stalled on the resource (``some`` of its pressure file; for the CPU this
    includes time throttled by the cgroup's own limit). ``io_…`` cover all disks, as counted by the block layer: I/O
    answered by the page cache is not included.
    """

    cpu_usage_s: float = 0.0
    cpu_throttled_s: float = 0.0
    cpu_stalled_s: float = 0.0
    memory_current_bytes: int = 0
    memory_working_set_bytes: int = 0
    memory_cache_bytes: int = 0
    memory_anon_bytes: int = 0
    memory_peak_bytes: int = 0
    memory_stalled_s: float = 0.0
    oom_kills: int = 0
    memory_high_events: int = 0
    io_read_bytes: int = 0
    io_write_bytes: int = 0
    io_stalled_s: float = 0.0
    pids: int = 0

    @property
    def memory_unreclaimable_bytes(self) -> int:
        """Anonymous, shmem, mlocked, dirty and kernel memory. Assumes no swap."""
        return max(0, self.memory_current_bytes - self.memory_cache_bytes)


class Total(NamedTuple):
    """The total use of a cgroup at its container's end; zero if the controller or the file does not exist."""

    cpu_s: float
    memory_peak_bytes: int
    oom_kills: int


class SummedUse(NamedTuple):
    """The use of all containers so far, including those that are gone, and the memory in use."""

    cpu_s: float
    disk_bytes: int
    memory_bytes: int


class Files:
    """Every file of one cgroup, by controller. A controller is made on its first use, as a short container uses few."""

    core = cached_property(lambda files: CoreFiles(files.path, *files.access))
    pids = cached_property(lambda files: PidsFiles(files.path, *files.access))
    cpu = cached_property(lambda files: CpuFiles(files.path, *files.access))
    cpuset = cached_property(lambda files: CpusetFiles(files.path, *files.access))
    parent_cpuset = cached_property(lambda files: CpusetFiles(files.path.rpartition(b"/")[0], *files.access))
    memory = cached_property(lambda files: MemoryFiles(files.path, *files.access))
    io = cached_property(lambda files: IoFiles(files.path, *files.access))

    def __init__(self, path: bytes, filesystem: Filesystem, read: Callable[[bytes], str] | None = None) -> None:
        """``read``: as for :class:`V2Controller`."""
        self.path = path
        self.access = (filesystem, read)


class Counters:
    """Reads samples of one cgroup, and skips counters that this kernel does not have."""

    def __init__(self, files: Files, controllers: frozenset[str]) -> None:
        self._files = files
        self._controllers = controllers
        self._lacking: set[tuple[V2Controller, str]] = set()

    def use(self, since: CgroupSample) -> CgroupSample | None:
        """Read the use; None if the cgroup vanished, even during the read. All other values are those of the earlier
        sample ``since``, but the peak is the present use if that is higher.
        """
        with contextlib.suppress(Gone):
            return self._use(since)
        return None

    def rest(self, use: CgroupSample, *, stalled: bool, shown: bool) -> CgroupSample | None:
        """Return ``use`` with the present stalled times, if ``stalled``, and with what no decision depends on (peak,
        processes, events), if ``shown``; None if the cgroup vanished.
        """
        with contextlib.suppress(Gone):
            sample = self._stalled(use) if stalled else use
            return self._shown(sample) if shown else sample
        return None

    def cpu_s(self) -> float | None:
        """Return the CPU time used until now, in seconds; None if the cgroup vanished."""
        try:
            return float(self._files.cpu.stat.get("usage_usec", 0)) / 1e6
        except Gone:
            return None

    def total(self) -> Total | None:
        """Return the total use of an ended container, from three files; None if the cgroup vanished."""
        memory, counted = self._files.memory, "memory" in self._controllers
        try:
            return Total(
                cpu_s=self._files.cpu.stat.get("usage_usec", 0) / 1e6,
                memory_peak_bytes=self._count(memory, "peak") if counted else 0,
                oom_kills=memory.events.get("oom_kill", 0) if counted else 0,
            )
        except Gone:
            return None

    def _use(self, since: CgroupSample) -> CgroupSample:
        files, controllers = self._files, self._controllers
        cpu = files.cpu.stat
        memory: dict[str, int] = files.memory.stat if "memory" in controllers else {}
        current = files.memory.current if "memory" in controllers else 0
        io: dict[str, dict[str, int | None]] = files.io.stat if "io" in controllers else {}
        inactive = memory.get("inactive_file", 0)
        busy = memory.get("file_dirty", 0) + memory.get("file_writeback", 0)
        return replace(
            since,
            cpu_usage_s=cpu.get("usage_usec", 0) / 1e6,
            cpu_throttled_s=cpu.get("throttled_usec", 0) / 1e6,
            memory_current_bytes=current,
            memory_working_set_bytes=max(0, current - inactive),
            memory_cache_bytes=max(0, memory.get("active_file", 0) + inactive - busy),
            memory_anon_bytes=memory.get("anon", 0),
            memory_peak_bytes=max(since.memory_peak_bytes, current) if since.memory_peak_bytes else 0,
            io_read_bytes=sum(fields.get("rbytes") or 0 for fields in io.values()),
            io_write_bytes=sum(fields.get("wbytes") or 0 for fields in io.values()),
        )

    def _stalled(self, sample: CgroupSample) -> CgroupSample:
        files = self._files
        return replace(
            sample,
            cpu_stalled_s=self._count(files.cpu, "stalled_us") / 1e6,
            memory_stalled_s=self._count(files.memory, "stalled_us") / 1e6,
            io_stalled_s=self._count(files.io, "stalled_us") / 1e6,
        )

    def _shown(self, sample: CgroupSample) -> CgroupSample:
        files, controllers = self._files, self._controllers
        events: dict[str, int] = files.memory.events if "memory" in controllers else {}
        return replace(
            sample,
            memory_peak_bytes=self._count(files.memory, "peak") if "memory" in controllers else 0,
            oom_kills=events.get("oom_kill", 0),
            memory_high_events=events.get("high", 0),
            pids=files.pids.current if "pids" in controllers else len(files.core.procs),
        )

    def _count(self, controller: V2Controller, name: str) -> int:
        """Read a counter that not every kernel has (NotSupported; EOPNOTSUPP if pressure is switched off)."""
        if (controller, name) not in self._lacking:
            try:
                return int(getattr(controller, name))
            except Gone:
                raise
            except OSError as error:
                if error.errno in PASSING:
                    raise
                self._lacking.add((controller, name))
        return 0
