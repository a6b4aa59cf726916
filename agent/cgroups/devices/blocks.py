"""Block devices: those that ``io.max`` can limit, and the one whose limit applies to writes to another.

A limit on a disk holds for all that lies on it: partitions, LVM, dm-crypt, md, file systems. If several disks are
joined to one device (striped LVM, md), a limit on that device holds for their sum; a limit on each disk holds for that
disk alone. Measured in docs/kernel-disks.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

SYS_BLOCK = Path("/sys/block")
#: Optical and floppy drives are not worth a limit; the kernel lists eMMC's boot partitions as disks of their own.
_NOT_DISKS = re.compile(r"(sr|fd)[0-9]|mmcblk[0-9]+(boot|rpmb)")
#: Memory used as a disk, mostly for swap.
_MEMORY = re.compile(r"(z?ram)[0-9]")


@dataclass(frozen=True, slots=True)
class Disk:
    """A block device that ``io.max`` takes: not a partition."""

    name: str
    major: int
    minor: int

    @property
    def number(self) -> str:
        """Return the number as cgroup files write it."""
        return f"{self.major}:{self.minor}"


@dataclass(frozen=True, slots=True)
class Loop:
    """A file that is used as a disk."""

    file: Path
    direct: bool
    """Its reads and writes bypass the page cache (``losetup --direct-io=on``)."""


def whole_disks(sys_block: Path = SYS_BLOCK) -> list[Disk]:
    """Return disks with a device behind them, without loop, ram, zram, device mapper and md, which lie on others."""
    return [disk for device in _devices(sys_block) if (device / "device").exists() and (disk := read_disk(device))]


def limited_disks(sys_block: Path = SYS_BLOCK) -> list[Disk]:
    """Return the devices that need a limit so that none a container may write to is unlimited.

    These are each disk that lies on no other, hardware or not (nbd, zvol), except memory; each device that joins
    several disks or reaches one by several paths; each writable loop device whose file is cached.
    """
    return [disk for device in _devices(sys_block) if _is_limited(device) and (disk := read_disk(device))]


def binding(device: Path) -> list[Path]:
    """Return the device in /sys whose ``io.max`` limits writes to a device; a loop device is returned itself.

    Returns more than one only if no device that the kernel can limit joins them.

    Raises:
        OSError: a device was removed meanwhile.
    """
    if (device / "partition").exists():
        return binding(device.parent)
    under = slaves(device)
    if not under or is_multipath(device):
        return [device]
    below = {found for slave in under for found in binding(slave)}
    return [device] if len(below) > 1 else list(below)


def slaves(device: Path) -> list[Path]:
    """Return the devices below a device mapper or md device, sorted by name."""
    directory = device / "slaves"
    return [slave.resolve(strict=True) for slave in sorted(directory.iterdir())] if directory.is_dir() else []


def loop(device: Path) -> Loop | None:
    """Return the loop device's file; None if the device is not a loop device with a file."""
    file = _text(device / "loop/backing_file")
    return Loop(Path(file), _text(device / "loop/dio") == "1") if file else None


def is_multipath(device: Path) -> bool:
    """Return whether the device joins several paths to one disk. Its requests bypass the throttle of the paths."""
    return _text(device / "dm/uuid").startswith("mpath-")


def label(device: Path) -> str:
    """Return the device's name for an operator: ``dm-0 (vg-data)``."""
    name = _text(device / "dm/name")
    return f"{device.name} ({name})" if name else device.name


def read_disk(device: Path) -> Disk | None:
    """Return the disk; None for a device without a medium, one that is not a disk, or one just unplugged."""
    if _NOT_DISKS.match(device.name) or _text(device / "size") in ("", "0"):
        return None
    if _text(device / "hidden") == "1":
        return None  # one of several paths to an NVMe disk; the disk itself is listed, too
    major, _, minor = _text(device / "dev").partition(":")
    return Disk(device.name, int(major), int(minor)) if minor else None


def _devices(sys_block: Path) -> list[Path]:
    return [entry.resolve() for entry in sorted(sys_block.iterdir())] if sys_block.is_dir() else []


def _is_limited(device: Path) -> bool:
    if _MEMORY.match(device.name):
        return False
    if device.name.startswith("loop"):
        file = loop(device)
        return file is not None and not file.direct and _text(device / "ro") != "1"
    try:
        return binding(device) == [device]
    except OSError:
        return False  # the device, or one below it, was just unplugged


def _text(file: Path) -> str:
    """Return the file's text, or "" if it does not exist."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
