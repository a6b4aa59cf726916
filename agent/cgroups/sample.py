"""The counters of one cgroup, read once."""

from __future__ import annotations

from dataclasses import dataclass

from agent.cgroups.core import CoreFiles, PidsFiles
from agent.cgroups.cpu import CpuFiles
from agent.cgroups.files import Filesystem, Gone, NotSupported
from agent.cgroups.io import IoFiles
from agent.cgroups.memory import MemoryFiles


@dataclass(frozen=True, slots=True)
class CgroupSample:
    """Counters of one cgroup and what is below it; zero where the controller is not there.

    ``memory_working_set_bytes`` leaves out the page cache that can go at once (memory.stat's inactive_file);
    ``io_…`` are of all disks, as the block layer saw them: what the cache answers is not in there.
    """

    cpu_usage_s: float = 0.0
    cpu_throttled_s: float = 0.0
    memory_current_bytes: int = 0
    memory_working_set_bytes: int = 0
    memory_peak_bytes: int = 0
    oom_kills: int = 0
    memory_high_events: int = 0
    memory_max_events: int = 0
    io_read_bytes: int = 0
    io_write_bytes: int = 0
    pids: int = 0


class Files:
    """Every file of one cgroup, by controller."""

    def __init__(self, path: bytes, filesystem: Filesystem) -> None:
        self.core = CoreFiles(path, filesystem)
        self.pids = PidsFiles(path, filesystem)
        self.cpu = CpuFiles(path, filesystem)
        self.memory = MemoryFiles(path, filesystem)
        self.io = IoFiles(path, filesystem)


def read_sample(files: Files, controllers: frozenset[str]) -> CgroupSample | None:
    """All counters now; None: the cgroup vanished, also while it was read."""
    try:
        cpu = files.cpu.stat
        memory: dict[str, int] = {}
        events: dict[str, int] = {}
        current = peak = 0
        if "memory" in controllers:
            memory, events, current = files.memory.stat, files.memory.events, files.memory.current
            peak = _peak(files.memory)
        io: dict[str, dict[str, int | None]] = files.io.stat if "io" in controllers else {}
        pids = files.pids.current if "pids" in controllers else len(files.core.procs)
    except Gone:
        return None
    return CgroupSample(
        cpu_usage_s=cpu.get("usage_usec", 0) / 1e6,
        cpu_throttled_s=cpu.get("throttled_usec", 0) / 1e6,
        memory_current_bytes=current,
        memory_working_set_bytes=max(0, current - memory.get("inactive_file", 0)),
        memory_peak_bytes=peak,
        oom_kills=events.get("oom_kill", 0),
        memory_high_events=events.get("high", 0),
        memory_max_events=events.get("max", 0),
        io_read_bytes=sum(fields.get("rbytes") or 0 for fields in io.values()),
        io_write_bytes=sum(fields.get("wbytes") or 0 for fields in io.values()),
        pids=pids,
    )


def _peak(memory: MemoryFiles) -> int:
    try:
        return int(memory.peak)
    except NotSupported:
        return 0
