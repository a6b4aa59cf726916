"""Mounts, read from ``/proc/self/mountinfo`` (proc(5))."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

MOUNTINFO = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount; ``kind`` is the file system's type, ``options`` are the file system's own."""

    point: str
    kind: str
    options: str

    def option(self, name: str) -> list[str]:
        """Return the values of ``name=…``, split at colons as in overlay's options; empty without such an option."""
        for option in re.split(r"(?<!\\),", self.options):
            key, equals, value = option.partition("=")
            if key == name and equals:
                return [each.replace("\\:", ":").replace("\\,", ",") for each in re.split(r"(?<!\\):", value) if each]
        return []


def mounts(text: str) -> dict[int, Mount]:
    """Return mount number → mount; lines that cannot be parsed are left out."""
    found = {}
    for line in text.splitlines():
        left, dash, right = line.partition(" - ")
        before, after = left.split(), right.split(" ")
        if dash and len(before) >= 6 and len(after) >= 3 and before[0].isdigit():
            found[int(before[0])] = Mount(_plain(before[4]), after[0], _plain(after[2]))
    return found


def mount_number(path: Path) -> int:
    """Return the number of the mount of a file: correct for bind mounts, and where mounts hide each other.

    Raises:
        OSError: the file does not exist.
    """
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        info = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii")
    finally:
        os.close(descriptor)
    found = re.search(r"^mnt_id:\s*(\d+)$", info, re.MULTILINE)
    assert found is not None  # since Linux 3.15
    return int(found[1])


def _plain(text: str) -> str:
    """Decode space, tab, newline and backslash, which the kernel writes in octal."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)
