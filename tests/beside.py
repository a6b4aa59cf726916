"""Run commands beside each other: ``python -m tests.beside 'make test-native' 5 'make test-host'``.

The number before a command is its nice value (0 where there is none). The output of the first is shown as it comes,
that of the others when all have ended. The exit status is 1 if one has failed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO


def main(*arguments: str) -> int:
    """Run all by the shell; return the exit status."""
    commands, values, nice = [], [], 0
    for argument in arguments:
        if argument.isdecimal():
            nice = int(argument)
        else:
            commands.append(argument)
            values.append(nice)
            nice = 0
    with contextlib.ExitStack() as stack:
        outputs = [None, *(stack.enter_context(tempfile.TemporaryFile()) for _ in commands[1:])]
        running = [
            stack.enter_context(_started(command, nice, output))
            for command, nice, output in zip(commands, values, outputs, strict=True)
        ]
        took_s = _waited(running)
        for output in outputs:
            if output is not None:
                output.seek(0)
                sys.stdout.buffer.write(output.read())
        for command, process in zip(commands, running, strict=True):
            said = "FAILED" if process.returncode else "passed"
            print(f"{command}: {said} in {took_s[process.pid]:.0f} s", flush=True)
    return int(any(process.returncode for process in running))


@contextlib.contextmanager
def _started(command: str, nice: int, output: IO[bytes] | None) -> Iterator[subprocess.Popen[bytes]]:
    """In a session of its own; what still runs of it at the end is terminated.

    sched(7): where sessions are weighed (autogroup) the nice value of the session counts, elsewhere each process's.
    """
    process = subprocess.Popen(
        ["nice", f"-n{nice}", "sh", "-c", command], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        start_new_session=True,
    )  # fmt: skip
    with contextlib.suppress(OSError):
        Path(f"/proc/{process.pid}/autogroup").write_text(str(nice))
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def _waited(running: list[subprocess.Popen[bytes]]) -> dict[int, float]:
    """Wait for all of them; how long each took, by its process id."""
    began, took_s = time.monotonic(), {}
    with contextlib.ExitStack() as stack:
        pending = {os.pidfd_open(process.pid): process for process in running}
        for pidfd in pending:
            stack.callback(os.close, pidfd)
        while pending:
            for pidfd in select.select(pending, [], [])[0]:
                process = pending.pop(pidfd)
                process.wait()
                took_s[process.pid] = time.monotonic() - began
    return took_s


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(*sys.argv[1:]))
