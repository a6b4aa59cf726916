"""A regular container alone, then beside ten opportunistic hogs: the part of its lone performance that it keeps."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.enforcement.accuracy import filled
from bench.enforcement.bed import Bed, Work
from bench.enforcement.figures import Figure, Isolation, percentile
from penstock.model import Limits

HOGS = 10
#: Rounds of a time alone and a time beside the hogs, so that a host that is busy with other things spoils both alike.
ROUNDS = 3
#: The time of each measurement, and the time before it: until all hogs run, or have finished their first work.
SECONDS, SETTLE_S = 4, 1.0
#: The settings of an agent whose hogs are to be left alone: here the kernel divides; preemption has tests of its own.
SETTINGS: dict[str, object] = {
    "preempt_dry_run": True,
    "t_alloc": 2,
    "disk_scheduler": "bfq",
    "memory_bytes": 768 << 20,  # less than the files that are written, a little more than all programs' own memory
}
_MIB = 1 << 20
_BLOCK = 131072
#: Of each hog's file on the slow disk: together more than the kernel keeps dirty, so that it never stops writing back.
_DIRTY_BYTES = 40 * _MIB
#: The rate of reading from the page cache: more than the slow disk's, less than that of emulated processors.
_CACHED_BYTES_PER_S = 80_000_000
_PROMISE: dict[str, Any] = {"cpu_cores": 1.0, "memory_bytes": 256 * _MIB}


@dataclass(frozen=True)
class Case:
    """A workload, the hogs beside it (a command for each number), and how its progress is shown."""

    what: str
    regular: tuple[object, ...]
    hogs: str
    hog: Callable[[int], tuple[object, ...]]
    unit: str = "cores"
    scale: float = 1.0
    promise: dict[str, Any] = field(default_factory=lambda: dict(_PROMISE))
    hog_limits: Limits = field(default_factory=Limits)
    lingers: bool = False  # operations that the hogs began go on while they are stopped


def measure(bed: Bed, case: Case, rounds: int = ROUNDS, seconds: int = SECONDS) -> Isolation:
    """Alone (the hogs are stopped), then beside the hogs, and again, by the workload's own count."""
    taken: dict[str, list[float]] = {"alone": [], "beside": []}
    order = ["alone"] * rounds + ["beside"] * rounds if case.lingers else ["alone", "beside"] * rounds
    with bed.cleared():
        regular = bed.start(*case.regular, **case.promise).ready()
        hogs: list[Work] = []
        for turn in order:
            if turn == "beside" and not hogs:
                hogs = [_hog(bed, case, number) for number in range(HOGS)]
            for hog in hogs:
                os.killpg(hog.container.pid, signal.SIGCONT if turn == "beside" else signal.SIGSTOP)
            time.sleep(SETTLE_S)
            began = time.monotonic()
            time.sleep(seconds)
            taken[turn] += regular.windows(began, began + seconds)
    alone, beside = taken.values()
    return Isolation(
        what=case.what,
        hogs=case.hogs,
        unit=case.unit,
        alone=sum(alone) / len(alone) / case.scale,
        alone_p1=percentile(alone, 1) / case.scale,
        beside=sum(beside) / len(beside) / case.scale,
        beside_p1=percentile(beside, 1) / case.scale,
    )


def _hog(bed: Bed, case: Case, number: int) -> Work:
    return bed.start(*case.hog(number), heard=False, opportunistic=True, limits=case.hog_limits)


def processor(**changes: Any) -> Case:
    """One core's worth of work beside ten that burn all there is."""
    return Case("a core", ("spin", "cpu"), "CPU burners", lambda _: ("spin", "cpu"), **changes)


def forks() -> Case:
    """Beside ten that fork without end, each with a limit on its processes."""
    limits = Limits(pids_max=64)
    return Case("a core", ("spin", "cpu"), "fork hogs, pids.max 64", lambda _: ("fork", 40), hog_limits=limits)


def disks(directory: Path) -> Iterator[Case]:
    """Direct reads of a file on a disk whose hogs read and write beside it, directly and through the page cache."""
    file = directory / "read"
    filled(file, 128 * _MIB)
    regular = ("read", file, _BLOCK)
    show: dict[str, Any] = {"unit": "MB/s", "scale": 1e6}
    yield Case("direct reads", regular, "direct readers", lambda _: ("read", file, _BLOCK), **show)
    for number in range(HOGS):
        filled(directory / f"written-{number}", 8 * _MIB)
    yield Case(
        "direct reads", regular, "direct writers", lambda n: ("write", directory / f"written-{n}", _BLOCK), **show
    )
    yield Case(
        "direct reads", regular, "writers through the page cache",
        lambda n: ("dirty", directory / f"dirty-{n}", _DIRTY_BYTES), lingers=True, **show,
    )  # fmt: skip


def memories(slow: Path, scratch: Path) -> Iterator[Case]:
    """A file of the slow disk that is read from the page cache, where the hogs fill the memory."""
    file = slow / "read"
    filled(file, 128 * _MIB)
    regular = ("cached", file, _CACHED_BYTES_PER_S)
    show: dict[str, Any] = {"unit": "MB/s", "scale": 1e6}
    yield Case(
        "reads from the page cache", regular, "writers through the page cache",
        lambda n: ("dirty", scratch / f"dirty-{n}", 72 * _MIB), **show,
    )  # fmt: skip
    yield Case(
        "reads from the page cache", regular, "that use memory and let go of it",
        lambda _: ("churn", 48 * _MIB), **show,
    )  # fmt: skip


def all_of(bed: Bed, slow: Path, scratch: Path) -> Iterator[Figure]:
    """Every case but the network's; ``slow`` lies on a disk that is slower than the processors can ask."""
    for case in itertools.chain([processor(), forks()], disks(slow), memories(slow, scratch)):
        yield measure(bed, case)
