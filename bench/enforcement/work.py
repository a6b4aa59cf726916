"""Workloads as commands: ``python3 -IS work.py KIND [ARGUMENT…]``, standard library only, for any Python.

Each prints its progress by its own count, a few times a second: one line of monotonic time in seconds and a total
(bytes, or loops). Other output of a kind is in its docstring.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path

_TICK_S = 0.05
_PAGE = 4096
_SPAN_BYTES = 512 << 20  # of a file or disk that is read and written


class Ticker:
    """Adds up and reports."""

    def __init__(self) -> None:
        self._total = 0.0
        self._due = 0.0

    def add(self, amount: float) -> None:
        """So much more was done, just now."""
        self.is_at(self._total + amount)

    def is_at(self, total: float) -> None:
        """So much has been done by now."""
        self._total = total
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _TICK_S
            say(f"{now:.6f} {self._total:.6f}")


def say(line: str) -> None:
    """One line, at once and as a whole."""
    os.write(1, f"{line}\n".encode())


def spin(unit: str, processes: str = "1") -> None:
    """Burn processors. The unit is ``loops``, or ``cpu``: seconds of CPU time, by the processes' own clocks."""
    totals = mmap.mmap(-1, 8 * int(processes))
    mine = 0
    while mine + 1 < int(processes) and os.fork() == 0:
        mine += 1
    every = memoryview(totals).cast("d")
    ticker = Ticker()
    while True:
        for _ in range(2000):
            pass
        every[mine] = time.process_time() if unit == "cpu" else every[mine] + 2000
        if mine == 0:
            ticker.is_at(sum(every))


def read(path: str, block: str, bytes_per_s: str = "0") -> None:
    """Read past the page cache, at random; with a rate no faster than that."""
    _direct(os.open(path, os.O_RDONLY | os.O_DIRECT), os.preadv, int(block), float(bytes_per_s))


def write(path: str, block: str, bytes_per_s: str = "0") -> None:
    """Write past the page cache, at random."""
    _direct(os.open(path, os.O_WRONLY | os.O_DIRECT), os.pwritev, int(block), float(bytes_per_s))


def _direct(file: int, move: object, block: int, bytes_per_s: float) -> None:
    assert callable(move)
    blocks = min(_SPAN_BYTES, os.lseek(file, 0, os.SEEK_END)) // block
    places, ticker, buffer = random.Random(os.getpid()), Ticker(), mmap.mmap(-1, block)
    due = time.monotonic()
    while True:
        ticker.add(move(file, [buffer], places.randrange(blocks) * block))
        if bytes_per_s:
            due = max(due + block / bytes_per_s, time.monotonic() - 0.2)
            time.sleep(max(0.0, due - time.monotonic()))


def dirty(path: str, size: str) -> None:
    """Write through the page cache, round and round in a file of ``size`` bytes, made anew: the cgroup that first
    writes to a file is charged for the later writes to the disk.
    """
    ticker, piece = Ticker(), bytes(1 << 20)
    Path(path).unlink(missing_ok=True)
    with Path(path).open("xb", buffering=0) as file:
        while True:
            file.seek(0)
            for _ in range(int(size) >> 20):
                ticker.add(file.write(piece))


def cached(path: str, bytes_per_s: str) -> None:
    """Read a file through the page cache, round and round, no faster than that."""
    ticker, piece = Ticker(), bytearray(1 << 20)
    due = time.monotonic()
    with Path(path).open("rb", buffering=0) as file:
        while True:
            file.seek(0)
            while count := file.readinto(piece):
                ticker.add(count)
                due = max(due + count / float(bytes_per_s), time.monotonic() - 0.2)
                time.sleep(max(0.0, due - time.monotonic()))


def hold(size: str, pause_s: str = "0") -> None:
    """Use so much anonymous memory, print ``held``, and wait for the end. After each MiB it pauses so many seconds."""
    kept = _touched(int(size), float(pause_s))
    say("held")
    while kept:
        signal.pause()


def keep(path: str) -> None:
    """Read a file until its cache counts as in use, print ``held``, and wait for the end."""
    with Path(path).open("rb", buffering=0) as file:
        for _ in range(3):
            file.seek(0)
            while file.read(1 << 20):
                pass
    say("held")
    while True:
        signal.pause()


def churn(size: str) -> None:
    """Use so much anonymous memory, let go of it, and again."""
    ticker = Ticker()
    while True:
        _touched(int(size)).close()
        ticker.add(int(size))


def press(size: str) -> None:
    """Start children that each want more memory than there is, one after the other. Print how many were killed."""
    killed = 0
    while True:
        if (child := os.fork()) == 0:
            _touched(int(size))
            os._exit(0)
        killed += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        say(f"{time.monotonic():.6f} {killed}")


def fork(children: str) -> None:
    """Fork without end: children that end at once, beside some that stay; a refused fork is tried again at once."""
    staying: list[int] = []
    ticker = Ticker()
    while True:
        with contextlib.suppress(BlockingIOError):
            if (child := os.fork()) == 0:
                if len(staying) < int(children):
                    signal.pause()
                os._exit(0)
            if len(staying) < int(children):
                staying.append(child)
            else:
                os.waitpid(child, 0)
            ticker.add(1)


def send(protocol: str, address: str, port: str, block: str) -> None:
    """Send as fast as it goes."""
    ticker, piece = Ticker(), bytes(int(block))
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM) as link:
        link.connect((address, int(port)))
        while True:
            with contextlib.suppress(ConnectionRefusedError):  # no process receives the datagram
                ticker.add(link.send(piece))


def grow(size: str) -> None:
    """Print ``ready``, read a number of bytes from a line of the input, then use ``size`` bytes.

    Print ``crossed`` and the monotonic time right before the byte of that number is touched, ``held`` at the end, and
    ``notice`` and the time at each SIGTERM, which is otherwise ignored.
    """
    signal.signal(signal.SIGTERM, lambda *_: say(f"notice {time.monotonic():.6f}"))
    say("ready")
    crossing = int(sys.stdin.readline())
    memory = mmap.mmap(-1, int(size))
    told = False
    for offset in range(0, int(size), _PAGE):
        if not told and offset >= crossing:
            told = True
            say(f"crossed {time.monotonic():.6f}")
        memory[offset] = 1
    say("held")
    while True:
        signal.pause()


def _touched(size: int, pause_s: float = 0.0) -> mmap.mmap:
    memory = mmap.mmap(-1, size)
    for offset in range(0, size, _PAGE):
        memory[offset] = 1
        if pause_s and not offset % (1 << 20):
            time.sleep(pause_s)
    return memory


KINDS = {each.__name__: each for each in (spin, read, write, dirty, cached, hold, keep, churn, press, fork, send, grow)}

if __name__ == "__main__":
    KINDS[sys.argv[1]](*sys.argv[2:])
