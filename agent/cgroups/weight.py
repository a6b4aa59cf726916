"""The kernel mechanism, if any, that divides a disk by weight.

Every kernel accepts ``io.weight``, which has no effect by itself: it belongs to io.cost, which must be enabled for a
disk with a model of its performance. bfq has a file of its own, or none at all (docs/benchmarks/kernel.md).
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from agent.cgroups.devices import Disk
from agent.cgroups.devices.blocks import SYS_BLOCK
from agent.cgroups.files import V2Controller
from agent.cgroups.filesystem import KERNEL, Filesystem, Gone, NotSupported
from agent.cgroups.io import IoFiles
from agent.cgroups.reason import Reason

_CHOSEN = re.compile(r"\[(.*)\]")


def io_weight_works(
    disk: Disk, top: Path, *, sys_block: Path = SYS_BLOCK, filesystem: Filesystem = KERNEL
) -> Reason | None:
    """Return why weights have no effect on a disk; None if they have.

    Args:
        top: the cgroup2 mount, which has ``io.cost.qos``.
    """
    if scheduler(disk.name, sys_block) == "bfq":
        return None
    with contextlib.suppress(NotSupported, Gone):
        if disk.number in IoFiles(top, filesystem).cost_enabled:
            return None
    return Reason(
        f"neither bfq nor io.cost divides {disk.name} by weight",
        f"modprobe bfq && echo bfq > /sys/block/{disk.name}/queue/scheduler",
    )


def scheduler(disk: str, sys_block: Path) -> str | None:
    """Return the I/O scheduler in use; None for a device without a choice, e.g. a device mapper's."""
    try:
        text = (sys_block / disk / "queue" / "scheduler").read_text(encoding="ascii")
    except OSError:
        return None
    chosen = _CHOSEN.search(text)
    return chosen[1] if chosen else None


def hierarchy_top(directory: Path, filesystem: Filesystem = KERNEL) -> Path:
    """Return the highest ancestor that is still a cgroup: the mount."""
    while V2Controller(directory.parent, filesystem).has("cgroup.controllers"):
        directory = directory.parent
    return directory
