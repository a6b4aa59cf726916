"""Block devices: which of them ``io.max`` can bind, and which one binds what is written to another.

A limit on a disk holds for all that lies on it: partitions, LVM, dm-crypt, md, file systems. Where several disks are
joined to one device (striped LVM, md), a limit on that device holds for their sum; on each disk it holds for that disk
alone. Measured in docs/kernel-disks.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

SYS_BLOCK = Path("/sys/block")
#: Optical and floppy drives are never worth a limit; eMMC's boot partitions are disks of their own to the kernel.
_NOT_DISKS = re.compile(r"(sr|fd)[0-9]|mmcblk[0-9]+(boot|rpmb)")
#: Memory that looks like a disk: swap, mostly.
_MEMORY = re.compile(r"(z?ram)[0-9]")


@dataclass(frozen=True, slots=True)
class Disk:
    """A block device that ``io.max`` takes: no partition."""

    name: str
    major: int
    minor: int

    @property
    def number(self) -> str:
        """As cgroup files write it."""
        return f"{self.major}:{self.minor}"


@dataclass(frozen=True, slots=True)
class Loop:
    """A file that is used as a disk."""

    file: Path
    direct: bool
    """Its reads and writes pass the page cache by (``losetup --direct-io=on``)."""


def whole_disks(sys_block: Path = SYS_BLOCK) -> list[Disk]:
    """The disks with a device behind them: no loop, ram, zram, device mapper or md (those lie on top of real ones)."""
    return [disk for device in _devices(sys_block) if _is_hardware(device) and (disk := read_disk(device))]


def limited_disks(sys_block: Path = SYS_BLOCK) -> list[Disk]:
    """What must have a limit so that nothing a container may write to goes without.

    Each disk that lies on no other, hardware or not (nbd, zvol), but for memory; each device that joins several or
    leads to one by several paths; each writable loop device whose file is cached.
    """
    return [disk for device in _devices(sys_block) if _is_limited(device) and (disk := read_disk(device))]


def binding(device: Path) -> list[Path]:
    """The device of /sys whose ``io.max`` binds what is written to a device; a loop device stands for itself.

    More than one only where nothing that the kernel can limit joins them.

    Raises:
        OSError: a device went away meanwhile.
    """
    if (device / "partition").exists():
        return binding(device.parent)
    under = slaves(device)
    if not under or is_multipath(device):
        return [device]
    below = {found for slave in under for found in binding(slave)}
    return [device] if len(below) > 1 else list(below)


def slaves(device: Path) -> list[Path]:
    """What a device mapper or md device lies on, by name."""
    directory = device / "slaves"
    return [slave.resolve(strict=True) for slave in sorted(directory.iterdir())] if directory.is_dir() else []


def loop(device: Path) -> Loop | None:
    """None for what is no loop device with a file."""
    file = _text(device / "loop/backing_file")
    return Loop(Path(file), _text(device / "loop/dio") == "1") if file else None


def is_multipath(device: Path) -> bool:
    """Several ways to one disk. Requests are cloned past the throttle of the ways: only a limit on their sum binds."""
    return _text(device / "dm/uuid").startswith("mpath-")


def label(device: Path) -> str:
    """As an operator knows it: ``dm-0 (vg-data)``."""
    name = _text(device / "dm/name")
    return f"{device.name} ({name})" if name else device.name


def read_disk(device: Path) -> Disk | None:
    """None for what has no medium in it, is no disk, or was unplugged while we looked."""
    if _NOT_DISKS.match(device.name) or _text(device / "size") in ("", "0"):
        return None
    if _text(device / "hidden") == "1":
        return None  # one path of several to an NVMe disk; the disk itself is listed, too
    major, _, minor = _text(device / "dev").partition(":")
    return Disk(device.name, int(major), int(minor)) if minor else None


def _devices(sys_block: Path) -> list[Path]:
    return [entry.resolve() for entry in sorted(sys_block.iterdir())] if sys_block.is_dir() else []


def _is_hardware(device: Path) -> bool:
    return (device / "device").exists()


def _is_limited(device: Path) -> bool:
    if _MEMORY.match(device.name):
        return False
    if device.name.startswith("loop"):
        file = loop(device)
        return file is not None and not file.direct and _text(device / "ro") != "1"
    try:
        return binding(device) == [device]
    except OSError:
        return False  # it, or what it lay on, was unplugged while we looked


def _text(file: Path) -> str:
    """Nothing where there is no such file."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
