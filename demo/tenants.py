"""Two other users of the host, each a program of its own: ``python -m demo.tenants archive | table``.

``archive`` is the opportunistic job: it takes the text into memory and compresses it, piece after piece, for as long as
it may, and tallies its work in a file that outlives it. ``table`` is regular: it fills a table in its promised memory,
and keeps it. Each prints a line when it holds its memory.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

#: The bytes read at once.
_STEP_BYTES = 8 * 1024 * 1024
#: Small, so that when it is killed its work is tallied but for that of a moment.
_PIECE_BYTES = 64 * 1024


def fill(memory_bytes: int, sources: Sequence[Path]) -> bytearray:
    """Fill that much memory, every page of it written, with the contents of the sources, repeated."""
    held = bytearray(memory_bytes)
    view = memoryview(held)
    while view:
        before = len(view)
        for source in sources:
            with source.open("rb", buffering=0) as file:
                while view and (count := file.readinto(view[:_STEP_BYTES])):
                    view = view[count:]
        if len(view) == before:
            raise ValueError("nothing to fill the memory with")
    return held


def archive(held: bytearray, tally: Path) -> None:
    """Compress for ever; the tally is the number of bytes compressed, 8 bytes, little-endian."""
    done = 0
    file = os.open(tally, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    view = memoryview(held)
    while True:
        for at in range(0, len(view), _PIECE_BYTES):
            done += len(view[at : at + _PIECE_BYTES])
            zlib.compress(view[at : at + _PIECE_BYTES])
            os.pwrite(file, done.to_bytes(8, "little"), 0)


def tallied(tally: Path) -> int:
    """Return the compressed bytes by the archive's tally."""
    try:
        return int.from_bytes(tally.read_bytes(), "little")
    except FileNotFoundError:
        return 0


def give_way() -> None:
    """Run on idle CPU only: for a host whose cgroups cannot see to it.

    Where the kernel groups processes by session (CONFIG_SCHED_AUTOGROUP), a policy counts within the session only; the
    group's own weight is a file (Linux 2.6.38). That of the session in which this was started is not changed.
    """
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if os.getpid() != os.getsid(0):
        with contextlib.suppress(PermissionError):  # it leads a group of processes
            os.setsid()
    if os.getpid() == os.getsid(0):
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_bytes(b"19")


def main(arguments: Sequence[str]) -> None:
    """The program; it never ends by itself."""
    parser = argparse.ArgumentParser(prog="demo.tenants")
    parser.add_argument("what", choices=("archive", "table"))
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--tally", type=Path, default=None)
    parser.add_argument("--yielding", action="store_true", help="run on idle CPU only, where the host cannot see to it")
    options = parser.parse_args(arguments)
    held = fill(options.memory, sorted(options.text.glob("part-*")))
    if options.yielding:
        give_way()  # not before: the jobs wait until the memory is held
    print(f"{options.what}: {len(held)} bytes", flush=True)
    if options.what == "archive":
        archive(held, options.tally)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main(sys.argv[1:])
