"""The disks of a host: what ``io.max`` can bind, and how many disk monotasks may run at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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


def whole_disks(sys_block: Path = Path("/sys/block")) -> list[Disk]:
    """The disks with a device behind them: no loop, ram, zram, device mapper or md (those lie on top of real ones)."""
    disks: list[Disk] = []
    for entry in sorted(sys_block.iterdir()) if sys_block.is_dir() else ():
        # A `device` link is what virtual block devices lack; optical and floppy drives are never worth a limit.
        if not (entry / "device").exists() or entry.name.startswith(("sr", "fd")):
            continue
        try:
            major, _, minor = (entry / "dev").read_text(encoding="ascii").strip().partition(":")
            disks.append(Disk(entry.name, int(major), int(minor)))
        except (OSError, ValueError):
            continue  # unplugged while we looked
    return disks
