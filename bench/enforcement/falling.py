"""A disk's limit is lowered while a reader waits behind it: by writing ``io.max`` at once, and by the agent.

The agent holds the reader's I/O before it writes (:mod:`agent.cgroups.blk_throttle_workaround`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.enforcement.accuracy import device_of, filled
from bench.enforcement.bed import Bed, Work
from bench.enforcement.figures import Figure, Lowering
from penstock.model import Limits

#: Of each way, by turns; each change has a reader in a container of its own.
CHANGES = 18
FAST, SLOW = 16_800_000, 4_200_000  # bytes per second
#: Of an agent that leaves ``io.max`` alone, which is written here behind its back.
SETTINGS: dict[str, object] = {"repair_interval_s": 0}
_MIB = 1 << 20
_FILE_BYTES, _BLOCK = 64 * _MIB, 256 << 10
#: The reader goes so far at the old limit. Then these times after the change are looked at.
_BEFORE_BYTES = FAST // 2
_FIRST_S, _THEN_S = 0.5, 1.0
#: The bytes that may come at once: a slice at the old limit, and the requests that were under way.
_AHEAD_BYTES = FAST // 5


def lowered(bed: Bed, scratch: Path, changes: int = CHANGES) -> Iterator[Figure]:
    """Lower the limit of one reader after the other, by turns in both ways."""
    file = scratch / "limit-falls"
    filled(file, _FILE_BYTES)
    device = device_of(scratch)

    def at_once(reader: Work) -> None:
        (reader.cgroup / "io.max").write_text(f"{device} rbps={SLOW}", encoding="ascii")

    def held(reader: Work) -> None:
        reader.container.resize(disk_read_bytes_per_s=SLOW)

    ways: dict[Callable[[Work], None], list[tuple[float, float]]] = {at_once: [], held: []}
    for _ in range(changes):
        for way, came in ways.items():
            came.append(_change(bed, file, way))
    file.unlink()
    yield figure("`io.max` is written at once", ways[at_once], judged=False)
    yield figure("the agent holds the I/O first", ways[held], judged=True)


def figure(what: str, came: list[tuple[float, float]], *, judged: bool) -> Lowering:
    """Return the figure of changes that let so many bytes through: at first, and afterwards."""
    return Lowering(
        what=what,
        first_mb=tuple(first / 1e6 for first, _ in came),
        then_mb=tuple(then / 1e6 for _, then in came),
        first_most_mb=(SLOW * _FIRST_S + _AHEAD_BYTES) / 1e6,
        then_least_mb=SLOW * _THEN_S / 2 / 1e6,
        judged=judged,
    )


def _change(bed: Bed, file: Path, lower: Callable[[Work], None]) -> tuple[float, float]:
    """Return the bytes that a reader gets in the first half second after a change, and in the second after that."""
    with bed.cleared():
        reader = bed.start("read", file, _BLOCK, limits=Limits(disk_read_bytes_per_s=FAST)).ready()
        bed.until(lambda: reader.total(time.monotonic()) > _BEFORE_BYTES)
        lower(reader)
        at = time.monotonic()
        time.sleep(_FIRST_S + _THEN_S)  # the time over which is measured
        edges = [reader.total(at + after_s) for after_s in (0.0, _FIRST_S, _FIRST_S + _THEN_S)]
    return edges[1] - edges[0], edges[2] - edges[1]
