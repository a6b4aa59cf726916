"""A disk's limit is lowered while a process reads at the limit: no read exceeds the limit, and no process stalls for
longer than a slice of the throttle (:mod:`agent.cgroups.blk_throttle_workaround`). Without the workaround, about half
of such changes fail.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bench.enforcement.accuracy import filled
from bench.enforcement.guest import SCRATCH
from penstock.model import Limits
from tests.kernel.warm_bed import Bed

#: Linux 7.2 does not have that fault.
pytestmark = [pytest.mark.timeout(300), pytest.mark.measured, pytest.mark.emulated]
MIB = 1 << 20
FAST, SLOW = 16_000_000, 4_000_000
ROUNDS = 4
#: The bytes that may come at once: a slice at the old limit, and the requests that were under way.
AHEAD_BYTES = FAST // 5


def test_no_read_exceeds_the_limit_and_none_stalls(tmp_path: Path) -> None:
    file = SCRATCH / "disk-limit-falls"
    filled(file, 64 * MIB)
    with Bed(tmp_path) as bed:
        reader = bed.start("read", file, 256 << 10, limits=Limits(disk_read_bytes_per_s=FAST)).ready()
        seen = []
        for _ in range(ROUNDS):
            began = reader.total(time.monotonic())
            bed.until(lambda began=began: reader.total(time.monotonic()) > began + 0.5 * FAST)  # type: ignore[misc]
            reader.container.resize(disk_read_bytes_per_s=SLOW)
            before, at = reader.total(time.monotonic()), time.monotonic()
            time.sleep(1.5)  # the time over which is measured
            seen.append((reader.total(time.monotonic()) - before) / (time.monotonic() - at))
            reader.container.resize(disk_read_bytes_per_s=FAST)
        most = SLOW + AHEAD_BYTES / 1.5
        assert all(0.5 * SLOW < each < most for each in seen), seen
    file.unlink()
