"""The disks of a host: what ``io.max`` can bind, and how many disk monotasks may run at once."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from agent.cgroups.reason import Reason

SYS_BLOCK = Path("/sys/block")
SYS_DEV_BLOCK = Path("/sys/dev/block")
#: Optical and floppy drives are never worth a limit; eMMC's boot partitions are disks of their own to the kernel.
_NOT_DISKS = re.compile(r"(sr|fd)[0-9]|mmcblk[0-9]+(boot|rpmb)")


@dataclass(frozen=True, slots=True)
class Disk:
    """A whole, physical (or virtual machine's) disk."""

    name: str
    major: int
    minor: int

    @property
    def number(self) -> str:
        """As cgroup files write it."""
        return f"{self.major}:{self.minor}"


def whole_disks(sys_block: Path = SYS_BLOCK) -> list[Disk]:
    """The disks with a device behind them: no loop, ram, zram, device mapper or md (those lie on top of real ones)."""
    found = (_disk(entry) for entry in (sorted(sys_block.iterdir()) if sys_block.is_dir() else ()))
    return [disk for disk in found if disk is not None]


def disk_of(path: Path, sys_dev_block: Path = SYS_DEV_BLOCK) -> Disk | Reason:
    """The disk under a file, through a partition and through device mapper or md that lie on one disk only.

    Raises:
        OSError: there is no such file.
    """
    number = path.stat().st_dev
    name = f"{os.major(number)}:{os.minor(number)}"
    if os.major(number) == 0:
        return Reason(
            f"{path} is on a file system without a block device of its own ({name}: overlay, btrfs, tmpfs, network)",
            "use a file on ext4 or xfs",
        )
    try:
        disks = _below((sys_dev_block / name).resolve(strict=True))
    except OSError as error:
        return Reason(f"the block device {name} of {path} is not in {sys_dev_block}: {error.strerror}")
    if len(disks) == 1:
        return disks.pop()
    found = ", ".join(sorted(disk.name for disk in disks)) or "none that io.max could bind"
    return Reason(f"{path} does not lie on one disk: {found}")


def _below(device: Path) -> set[Disk]:
    """The whole disks that a device of /sys lies on."""
    slaves = device / "slaves"
    under = list(slaves.iterdir()) if slaves.is_dir() else []
    if under:
        return set().union(*(_below(slave.resolve(strict=True)) for slave in under))
    if (device / "partition").exists():
        return _below(device.parent)
    disk = _disk(device)
    return set() if disk is None else {disk}


def _disk(device: Path) -> Disk | None:
    """None for what has no hardware behind it (no ``device`` link), or no medium in it, or is no disk."""
    if not (device / "device").exists() or _NOT_DISKS.match(device.name):
        return None
    try:
        if int((device / "size").read_text(encoding="ascii")) == 0:
            return None
        if (device / "hidden").exists() and (device / "hidden").read_text(encoding="ascii").strip() == "1":
            return None  # one path of several to an NVMe disk; the disk itself is listed, too
        major, _, minor = (device / "dev").read_text(encoding="ascii").strip().partition(":")
        return Disk(device.name, int(major), int(minor))
    except (OSError, ValueError):
        return None  # unplugged while we looked
