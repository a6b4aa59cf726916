"""How long a record of the journal takes, with an idle disk and beside a writer that keeps the disk busy.

The peer is a file of its own for each record, which is brought to the disk before the next one. The directory is on the
disk of TMPDIR.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from agent.core.records import ContainerRecord
from agent.journal import Journal
from penstock.model import ContainerSpec

RECORDS = 200
#: Written again and again to keep the disk busy, and brought to the disk each time.
BUSY_BYTES = 64 << 20
_WRITER = """
import os, sys
block = os.urandom(1 << 20)
while True:
    with open(sys.argv[1], "wb") as file:
        for _ in range(int(sys.argv[2]) >> 20):
            file.write(block)
        print("written", flush=True)
        os.fsync(file.fileno())
"""


def record(number: int) -> ContainerRecord:
    """A record as agents write them."""
    spec = ContainerSpec(argv=("sh", "-c", "exec ./work"), env={"HOME": "/home/u"}, cwd="/home/u")
    return ContainerRecord(container=f"bench-{number}", user="u", spec=spec, opportunistic=False)


@contextlib.contextmanager
def writer(directory: Path) -> Iterator[None]:
    """Run another process that writes to the same disk."""
    command = [sys.executable, "-c", _WRITER, str(directory / "busy"), str(BUSY_BYTES)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()
            yield
        finally:
            process.kill()


def times_ms(write: Callable[[int], object]) -> list[float]:
    """How long each record took, in milliseconds."""
    took = []
    for number in range(RECORDS):
        began = time.perf_counter()
        write(number)
        took.append(1e3 * (time.perf_counter() - began))
    return took


def journaled(directory: Path) -> list[float]:
    """Measure the records of the journal, whose thread brings them to the disk meanwhile."""
    journal = Journal(directory / "journal")
    journal.start()
    took = times_ms(lambda number: journal.write("containers", f"bench-{number}", record(number)))
    journal.close()
    return took


def synced(directory: Path) -> list[float]:
    """The peer."""

    def write(number: int) -> None:
        descriptor = os.open(directory / f"record-{number}", os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(descriptor, msgspec.msgpack.encode(record(number)))
        os.fsync(descriptor)
        os.close(descriptor)

    return times_ms(write)


def measured(way: Callable[[Path], list[float]], *, busy: bool) -> list[float]:
    """The times of one way, on a disk that is busy or not."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        if busy:
            stack.enter_context(writer(directory))
        return way(directory)


def main() -> int:
    """Print medians and 95th percentiles; 1 where the journal's median is not below its peer's."""
    print(f"{RECORDS} records, ms each{'median':>18}{'95 %':>9}")
    missed = False
    for disk in ("idle", "busy"):
        medians = []
        for way in (journaled, synced):
            took = measured(way, busy=disk == "busy")
            medians.append(statistics.median(took))
            print(
                f"{f'{disk} disk, {way.__name__}':<26}{medians[-1]:>15.3f}{statistics.quantiles(took, n=20)[-1]:>9.3f}"
            )
        missed |= medians[0] >= medians[1]
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
