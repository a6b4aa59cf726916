"""Lower ``io.max`` while I/O waits, on kernels that would otherwise let all of it through.

The kernel carries bytes that were dispatched ahead of time over to the new limit as a negative number, and Linux 6.1 to
6.5 add that to an unsigned one (block/blk-throttle.c, tg_within_bps_limit; fixed in 6.6 by "fix wrong comparation while
carryover_ios/bytes is negative"): for 0.1 s nothing is throttled, and then nothing runs until the new limit has made up
for it. Measured in docs/benchmarks/kernel.md.

The workaround holds the I/O for one slice, by a limit on operations too low for any to start: meanwhile the old limit's
budget grows to at least the bytes dispatched ahead. If operations are limited themselves, this does not hold any I/O,
and is not done.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

from agent.cgroups.devices import Disk
from agent.cgroups.io import IoFiles
from agent.core.confinement import Confinement

#: DFL_THROTL_SLICE_HD, 0.1 s, plus a tick or two.
SLICE_S = 0.11
#: The minimum of io.max: the first operation would be due after half a second.
_HELD = 2
_FIRST, _MENDED = (6, 1), (6, 6)


def needed(release: str) -> bool:
    """Return whether the kernel of this release (``uname -r``) has the defect."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return found is not None and _FIRST <= (int(found[1]), int(found[2])) < _MENDED


def falls(before: Confinement | None, wanted: Confinement) -> bool:
    """Return whether a rate falls or is removed (its carry-over then waits for the next limit), and I/O can be held."""
    if before is None or before.disk_read_ops_per_s is not None or before.disk_write_ops_per_s is not None:
        return False
    rates = (
        (before.disk_read_bytes_per_s, wanted.disk_read_bytes_per_s),
        (before.disk_write_bytes_per_s, wanted.disk_write_bytes_per_s),
    )
    return any(old is not None and (new is None or new < old) for old, new in rates)


@contextlib.contextmanager
def held(io: IoFiles, disks: Sequence[Disk], wanted: Confinement) -> Iterator[None]:
    """Keep new I/O from starting meanwhile; then let it continue, with the operations that ``wanted`` allows.

    A disk that refuses the limit is skipped.
    """
    _limit(io, disks, _HELD, _HELD)
    try:
        yield
    finally:
        _limit(io, disks, wanted.disk_read_ops_per_s, wanted.disk_write_ops_per_s)


def _limit(io: IoFiles, disks: Sequence[Disk], read_ops_per_s: int | None, write_ops_per_s: int | None) -> None:
    for disk in disks:
        with contextlib.suppress(OSError):
            io.max = (disk.number, {"riops": read_ops_per_s, "wiops": write_ops_per_s})
