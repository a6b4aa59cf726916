"""Lowering ``io.max`` while I/O waits behind it, on kernels that would let everything through instead.

What was dispatched ahead of its time is carried over to the new limit as a negative number of bytes, and Linux 6.1 to
6.5 add it to an unsigned one (block/blk-throttle.c, tg_within_bps_limit; mended in 6.6 by "fix wrong comparation while
carryover_ios/bytes is negative"): for a tenth of a second nothing is throttled, and then nothing runs until the new
limit has made up for it. Measured in docs/kernel-disks.md.

So the I/O is held for a slice, by a limit of operations too low for one: meanwhile what the old limit allows adds up to
what was ahead, or more. Where operations are limited themselves that does not hold anything, and is not done.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence

from agent.cgroups.devices import Disk
from agent.cgroups.io import IoFiles
from agent.core.confinement import Confinement

#: DFL_THROTL_SLICE_HD, a tenth of a second, and a tick or two.
SLICE_S = 0.11
#: The least that io.max takes: the first one would be due after half a second.
_HELD = 2
_FIRST, _MENDED = (6, 1), (6, 6)
_OPERATIONS = ("riops", "wiops")


def needed(release: str) -> bool:
    """Whether the kernel of this release (``uname -r``) is one of those."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return found is not None and _FIRST <= (int(found[1]), int(found[2])) < _MENDED


def falls(before: Confinement | None, wanted: Confinement) -> bool:
    """Whether a rate falls, or is taken away (what is carried over then waits for the next one), and can be held."""
    if before is None or before.disk_read_ops_per_s is not None or before.disk_write_ops_per_s is not None:
        return False
    rates = (
        (before.disk_read_bytes_per_s, wanted.disk_read_bytes_per_s),
        (before.disk_write_bytes_per_s, wanted.disk_write_bytes_per_s),
    )
    return any(old is not None and (new is None or new < old) for old, new in rates)


def hold(io: IoFiles, disks: Sequence[Disk]) -> None:
    """No I/O begins from now on. A disk that does not take it goes without."""
    _limit(io, disks, dict.fromkeys(_OPERATIONS, _HELD))


def let_go(io: IoFiles, disks: Sequence[Disk], confinement: Confinement) -> None:
    """It goes on, with as many operations as it may have."""
    limits = (confinement.disk_read_ops_per_s, confinement.disk_write_ops_per_s)
    _limit(io, disks, dict(zip(_OPERATIONS, limits, strict=True)))


def _limit(io: IoFiles, disks: Sequence[Disk], limits: dict[str, int | None]) -> None:
    for disk in disks:
        with contextlib.suppress(OSError):
            io.max = (disk.number, limits)
