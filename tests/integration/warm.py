"""Daemons forked from a process that has imported them: a second less for each of the hundreds that tests start."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["agent.daemon", "master.daemon", __name__])


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
