"""Daemons forked from a process that has imported them: a second less for each of the hundreds that tests start."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from functools import cache
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["agent.daemon", "master.daemon", __name__])


@cache
def _network() -> int:
    """The network namespace in which they are imported: that of the first who asks."""
    return Path("/proc/self/ns/net").stat().st_ino


class Forked:
    """A daemon, with what tests use of a ``subprocess.Popen``."""

    def __init__(self, module: str, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        """``module``: agent or master; what it writes is added to ``log``."""
        self._process: ForkServerProcess = _CONTEXT.Process(target=_run, args=(module, arguments, environment, log))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """As far as somebody has waited for it."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Its exit status; the negative number of a signal; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Likewise, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(f"daemon {self.pid}", timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def run(
    module: str, arguments: list[str], environment: dict[str, str], log: Path, *, imports_anew: bool = False
) -> Forked | subprocess.Popen[bytes]:
    """A daemon, forked where a fork would be where we are: a test may have gone to a network of its own.

    ``imports_anew``: it reads something of its environment while it is imported, so it is ``python -I -m module``.
    """
    if _network() == Path("/proc/self/ns/net").stat().st_ino and not imports_anew:
        return Forked(module, arguments, environment, log)
    command = [sys.executable, "-I", "-m", module, *arguments]
    with log.open("ab") as output:
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def _run(module: str, arguments: list[str], environment: dict[str, str], log: Path) -> None:
    os.environ.clear()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for descriptor in (sys.stdout.fileno(), sys.stderr.fileno()):
        os.dup2(output, descriptor)
    os.close(output)
    import agent.command
    import master.command

    sys.exit({"agent": agent.command.main, "master": master.command.main}[module](arguments))
