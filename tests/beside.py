"""Run four commands in two lanes: ``python -m tests.beside 10 'make a' 'make b' -- 'make c' 'make d'``.

Each lane runs its second command when its first is over. The last command measures: it begins when the first commands
of both lanes are over, and from then on the other lane has the nice value 10, which is a tenth of the processor time.
What that lane says is shown at the end. The exit status is 1 if any command failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import psutil


class Lane:
    """Commands one after the other, in sessions of their own."""

    def __init__(self, commands: Sequence[str], output: IO[bytes]) -> None:
        self.failed = False
        self.first_is_over = threading.Event()
        self._commands, self._output = commands, output
        self._process: subprocess.Popen[bytes] | None = None
        self._nice = 0
        self._ended = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Begin with the first command."""
        self._thread.start()

    def join(self) -> None:
        """Wait until the last command is over."""
        self._thread.join()

    def renice(self, nice: int) -> None:
        """Give what runs, and what is started from now on, another nice value."""
        with self._lock:
            self._nice = nice
            if self._process is not None:
                _renice(self._process.pid, nice)

    def end(self) -> None:
        """End what runs, and start nothing more."""
        with self._lock:
            self._ended = True
            if self._process is not None and self._process.poll() is None:
                os.killpg(self._process.pid, 15)

    def _run(self) -> None:
        for command in self._commands:
            with self._lock:
                if self._ended:
                    break
                process = subprocess.Popen(
                    ["sh", "-c", command],
                    stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output, start_new_session=True,
                )  # fmt: skip
                self._process = process
                _renice(process.pid, self._nice)
            started = time.monotonic()
            self.failed |= _said(command, process.wait(), started)
            self.first_is_over.set()
        self.first_is_over.set()


def main(nice: str, first: str, second: str, dashes: str, own_first: str, own_second: str) -> int:
    """Run the lanes; return the exit status."""
    assert dashes == "--"
    with tempfile.TemporaryFile() as output:
        lane = Lane([first, second], output)
        lane.start()
        try:
            failed = _run(own_first)
            lane.first_is_over.wait()
            lane.renice(int(nice))
            failed |= _run(own_second)
            lane.join()
        finally:
            lane.end()
            output.seek(0)
            sys.stdout.buffer.write(output.read())
            sys.stdout.flush()
    return int(failed or lane.failed)


def _run(command: str) -> bool:
    started = time.monotonic()
    return _said(command, subprocess.run(["sh", "-c", command], check=False).returncode, started)


def _said(command: str, status: int, started: float) -> bool:
    print(f"{command}: {'FAILED' if status else 'passed'} in {time.monotonic() - started:.0f} s", flush=True)
    return status != 0


def _renice(first: int, nice: int) -> None:
    """A process and its descendants; where the kernel weighs sessions (sched(7), autogroup), their sessions, too."""
    if not nice:
        return
    try:
        processes = [psutil.Process(first), *psutil.Process(first).children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in processes:
        try:
            for thread in process.threads():
                os.setpriority(os.PRIO_PROCESS, thread.id, nice)
            Path(f"/proc/{process.pid}/autogroup").write_text(str(nice))
        except (psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
            continue  # it ended meanwhile, or the kernel has no autogroups


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
