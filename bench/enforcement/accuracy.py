"""Limits over ten seconds: CPU, memory and disk, on the host that this runs on, through an agent."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from bench.enforcement.bed import Bed, Work
from bench.enforcement.figures import Accuracy, Figure
from penstock.model import Limits

#: The time of a measurement, and the time before it, in which Python starts and the first period of a limit ends.
SECONDS, WARM_UP_S = 10.0, 1.0
CPU_BAR, DISK_BAR = 0.02, 0.05
_MIB = 1 << 20
_MEMORY_MAX = 64 * _MIB
_DISK_FILE_BYTES = 256 * _MIB


def cpu(bed: Bed, seconds: float = SECONDS) -> Iterator[Figure]:
    """Shares of processors."""
    for cores in (0.1, 0.5, 1.0, 1.5):
        with bed.cleared():
            work = bed.start("spin", "cpu", 1 if cores <= 1 else 2, limits=Limits(cpu_cores=cores)).ready()
            yield _cpu_of(work, f"cpu {cores:g} cores", cores, seconds)


def resized(bed: Bed, seconds: float = SECONDS) -> Iterator[Figure]:
    """A share of a processor that is changed while it is used."""
    with bed.cleared():
        work = bed.start("spin", "cpu", 1, limits=Limits(cpu_cores=0.25)).ready()
        yield _cpu_of(work, "cpu 0.25 cores, before a resize", 0.25, seconds)
        work.container.resize(cpu_cores=0.75)
        yield _cpu_of(work, "cpu 0.75 cores, after it", 0.75, seconds)


def _cpu_of(work: Work, what: str, cores: float, seconds: float) -> Accuracy:
    time.sleep(WARM_UP_S)
    before, began = work.charged_cpu_s(), time.monotonic()
    time.sleep(seconds)
    after, ended = work.charged_cpu_s(), time.monotonic()
    counted = (work.total(ended) - work.total(began)) / (ended - began)
    charged = (after - before) / (ended - began)
    return Accuracy(what=what, unit="cores", asked=cores, charged=charged, counted=counted, bar=CPU_BAR)


def memory(bed: Bed, scratch: Path, seconds: float = SECONDS) -> Iterator[Figure]:
    """memory.max is never exceeded, whether it is pressed by programs' own memory or by the page cache."""
    limits = Limits(memory_max_bytes=_MEMORY_MAX)
    workloads = {
        "memory.max, children that want twice as much": ("press", 2 * _MEMORY_MAX),
        "memory.max, 256 MiB written through the page cache": ("dirty", scratch / "pressed", _DISK_FILE_BYTES),
    }
    for what, command in workloads.items():
        with bed.cleared():
            work = bed.start(*command, limits=limits).ready()
            time.sleep(seconds)
            peak = work.value("memory.peak")
        yield Accuracy(what=what, unit="MiB", asked=_MEMORY_MAX / _MIB, charged=peak / _MIB, bar=0.0, at_most=True)
    (scratch / "pressed").unlink(missing_ok=True)


def disk(bed: Bed, scratch: Path, seconds: float = SECONDS) -> Iterator[Figure]:
    """Direct reads and writes at three rates; buffered ones are only shown: the kernel charges them when it likes."""
    file = scratch / "read-and-written"
    filled(file, _DISK_FILE_BYTES)
    for megabytes in (1, 10, 50):
        rate = megabytes * 10**6
        block = 65536 if megabytes == 1 else 262144
        with bed.cleared():
            work = bed.start("read", file, block, limits=Limits(disk_read_bytes_per_s=rate)).ready()
            yield _disk_of(work, scratch, f"direct reads, {megabytes} MB/s", "rbytes", rate, DISK_BAR, seconds)
        with bed.cleared():
            work = bed.start("write", file, block, limits=Limits(disk_write_bytes_per_s=rate)).ready()
            yield _disk_of(work, scratch, f"direct writes, {megabytes} MB/s", "wbytes", rate, DISK_BAR, seconds)
    with bed.cleared():
        rate = 10 * 10**6
        work = bed.start("dirty", file, _DISK_FILE_BYTES, limits=Limits(disk_write_bytes_per_s=rate)).ready()
        yield _disk_of(work, scratch, "buffered writes, 10 MB/s", "wbytes", rate, None, seconds)
    file.unlink()


def _disk_of(work: Work, scratch: Path, what: str, key: str, rate: int, bar: float | None, seconds: float) -> Accuracy:
    device = device_of(scratch)
    time.sleep(WARM_UP_S)
    before, began = work.charged_io(device, key), time.monotonic()
    time.sleep(seconds)
    after, ended = work.charged_io(device, key), time.monotonic()
    counted = (work.total(ended) - work.total(began)) / (ended - began) / 1e6
    charged = (after - before) / (ended - began) / 1e6
    return Accuracy(what=what, unit="MB/s", asked=rate / 1e6, charged=charged, counted=counted, bar=bar)


def filled(file: Path, size: int) -> None:
    """A file whose blocks are all on the disk: one with holes is read without the disk."""
    with file.open("wb") as written:
        for _ in range(size // _MIB):
            written.write(bytes(_MIB))
        written.flush()
        os.fsync(written.fileno())


def device_of(path: Path) -> str:
    """``major:minor`` of the whole disk that a path's file system lies on; it must not lie on a partition."""
    device = path.stat().st_dev
    return f"{os.major(device)}:{os.minor(device)}"
