"""The host's counters, read from files of ``/proc`` that stay open: four system calls a sample, not psutil's sixty.

Formats: proc_stat(5), proc_meminfo(5), proc_pid_net(5), and Documentation/admin-guide/iostats.rst for ``diskstats``.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

_READ_BYTES = 64 * 1024
#: A list of short lines fills its page up to the line that does not fit (fs/seq_file.c), so a shorter read is the end.
#: Not so ``diskstats``: the lines of a disk and all its partitions come together, so it is read up to the last disk.
_END_BYTES = 2048
#: The first line of ``stat``: eleven numbers of at most 20 digits.
_STAT_BYTES = 256
#: Of a line of ``diskstats``, whatever the size of the disk's own sectors.
_SECTOR_BYTES = 512


class DiskCounters(NamedTuple):
    """Of one disk since the start of the host; ``busy_ms`` is the time in which it had something to do."""

    read_bytes: int
    write_bytes: int
    busy_ms: int


class CpuTime(NamedTuple):
    """Of all processors together since the start of the host, in the kernel's ticks. Waiting for a disk is idle."""

    busy: int
    idle: int


class HostCounters:
    """Reads the files below ``proc``; they are closed when nothing refers to it any more."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._stat, self._memory = _open(proc / "stat"), _open(proc / "meminfo")
        self._disks, self._links = _open(proc / "diskstats"), _open(proc / "net" / "dev")
        for descriptor in (self._stat, self._memory, self._disks, self._links):
            if descriptor is not None:
                weakref.finalize(self, os.close, descriptor)

    def cpu(self) -> CpuTime:
        """Return the time of all processors; guests' time is a part of ``user`` and is not counted twice."""
        if self._stat is None:
            return CpuTime(0, 0)
        ticks = [int(each) for each in os.pread(self._stat, _STAT_BYTES, 0).split(b"\n", 1)[0].split()[1:9]]
        idle = sum(ticks[3:5])
        return CpuTime(sum(ticks) - idle, idle)

    def memory_bytes(self) -> tuple[int, int]:
        """Return the host's memory, and how much of it can be had without swapping."""
        text = _all_of(self._memory)
        total, available = (_kib(text, name) * 1024 for name in (b"MemTotal:", b"MemAvailable:"))
        return total, min(total, available)

    def disks(self, names: Collection[str]) -> dict[str, DiskCounters]:
        """Return the counters of these disks, as far as they are there."""
        found: dict[str, DiskCounters] = {}
        for part in _parts_of(self._disks if names else None):
            for line in part.decode().splitlines():
                fields = line.split()
                if fields[2] in names:
                    found[fields[2]] = DiskCounters(
                        int(fields[5]) * _SECTOR_BYTES, int(fields[9]) * _SECTOR_BYTES, int(fields[12])
                    )
            if len(found) == len(names):  # the end of the file would take one more read
                break
        return found

    def links(self) -> dict[str, tuple[int, int]]:
        """Return the bytes that each link has received and sent."""
        found: dict[str, tuple[int, int]] = {}
        for line in _all_of(self._links).decode().splitlines()[2:]:  # two lines of headings
            name, _, numbers = line.rpartition(":")
            fields = numbers.split()
            found[name.strip()] = int(fields[0]), int(fields[8])
        return found


def _kib(text: bytes, name: bytes) -> int:
    """Return one of the fifty fields of ``meminfo``; 0: this kernel lacks it."""
    number, *_ = text.partition(name)[2].split(None, 1) or (b"0",)
    return int(number)


def _open(path: Path) -> int | None:
    """Open a file; None where the kernel does not have it, which then counts nothing."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _all_of(descriptor: int | None) -> bytes:
    """Read a file of short lines to its end."""
    data = b""
    for part in _parts_of(descriptor):
        data += part
        if len(part) < _END_BYTES:
            break
    return data


def _parts_of(descriptor: int | None) -> Iterator[bytes]:
    """Yield a file in parts of whole lines: the kernel gives lists by the page (fs/seq_file.c)."""
    offset = 0
    while descriptor is not None and (part := os.pread(descriptor, _READ_BYTES, offset)):
        offset += len(part)
        yield part
