"""Daemons forked from a process that has imported them: a second less for each of the hundreds that tests start."""

from __future__ import annotations

import ctypes
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["agent.daemon", "master.daemon", __name__, f"{__package__}.frozen"])


_CLONE_NEWNET = 0x4000_0000


class Forked:
    """A daemon, with the part of ``subprocess.Popen`` that tests use."""

    def __init__(self, module: str, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        """Start ``module``, agent or master; its output is added to ``log``."""
        # A test may have gone to a network of its own, which the process that forks has not.
        network = f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net"
        self._process: ForkServerProcess = _CONTEXT.Process(
            target=_run, args=(module, arguments, environment, log, network)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Return its status if it has been waited for."""
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
    module: str,
    arguments: list[str],
    environment: dict[str, str],
    log: Path,
    *,
    imports_anew: bool = False,
    program: Path | None = None,
) -> Forked | subprocess.Popen[bytes]:
    """A daemon, forked, or with ``imports_anew`` as an operator starts it: ``python -I -m module``.

    ``program``: the ``penstock`` of another installation, which starts it instead.
    """
    if program is None and not imports_anew:
        return Forked(module, arguments, environment, log)
    command = [*([str(program)] if program else [sys.executable, "-I", "-m"]), module, *arguments]
    with log.open("ab") as output:
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def _run(module: str, arguments: list[str], environment: dict[str, str], log: Path, network: str) -> None:
    _enter(network)
    os.environ.clear()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for descriptor in (sys.stdout.fileno(), sys.stderr.fileno()):
        os.dup2(output, descriptor)
    os.close(output)
    import agent.command
    import agent.fault_injection
    import master.command

    importlib.reload(agent.fault_injection)  # it alone reads its environment when it is imported
    sys.exit({"agent": agent.command.main, "master": master.command.main}[module](arguments))


def _enter(network: str) -> None:
    namespace = Path(network)
    if namespace.stat().st_ino == Path("/proc/self/ns/net").stat().st_ino:
        return
    with namespace.open("rb") as opened:
        if ctypes.CDLL(None, use_errno=True).setns(opened.fileno(), _CLONE_NEWNET) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), network)
