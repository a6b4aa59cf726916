"""The watchdog follows the event loop: the messages to the service manager while a daemon's loop goes round, and while
not.

A loop is blocked as in life: by standard error, a pipe that no process empties. The process is not stopped.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration.conftest import START_TIMEOUT_S, end_launcher, options

WATCHDOG_S = 1.0
#: In so many intervals the service manager would have ended the daemon twice over.
SILENT_S = 2 * WATCHDOG_S
#: A loop that is not blocked logs less meanwhile.
MOST = 20


@dataclass
class Watched:
    """A daemon, its messages to its service manager, and its output."""

    process: subprocess.Popen[bytes]
    manager: socket.socket
    stderr: int
    seen: bytearray = field(default_factory=bytearray)

    def receives(self, state: bytes) -> None:
        """Wait until the daemon sends it."""
        self.manager.settimeout(START_TIMEOUT_S)
        try:
            while state not in self.manager.recv(4096).split(b"\n"):
                pass
        except TimeoutError:
            pytest.fail(f"no {state!r}; it wrote: {bytes(self.seen)!r}")

    def receives_nothing(self) -> None:
        """Check that no message comes from some moment on; messages sent before the daemon was blocked may still
        come.
        """
        self.manager.settimeout(SILENT_S)
        with pytest.raises(TimeoutError):
            for _ in range(MOST):
                self.manager.recv(4096)

    def fill(self) -> None:
        """Fill standard error: a write of one more byte waits."""
        ours = os.open(f"/proc/self/fd/{self.stderr}", os.O_WRONLY | os.O_NONBLOCK)
        with suppress(BlockingIOError):
            while True:
                os.write(ours, b"\n")
        os.close(ours)

    def empty(self) -> None:
        while select.select([self.stderr], [], [], 0)[0] and (data := os.read(self.stderr, 1 << 16)):
            self.seen += data.strip(b"\n")


@pytest.fixture
def watched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Watched]:
    name = str(request.param)
    places = {
        "agent": {"runtime_dir": tmp_path / "run", "state_dir": tmp_path / "state"},
        "master": {"listen": tmp_path / "master.sock", "store": tmp_path / "store.db"},
    }[name]
    command = [sys.executable, "-I", "-m", name, *options(http="127.0.0.1:0", **places)]
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1 << 16)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "manager"))
        told = {"NOTIFY_SOCKET": str(tmp_path / "manager"), "WATCHDOG_USEC": f"{WATCHDOG_S * 1e6:.0f}"}
        around = {key: value for key, value in os.environ.items() if key != "WATCHDOG_PID"} | told
        process = subprocess.Popen(command, env=around, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer)
        os.close(writer)
        yield Watched(process, manager, reader)
        os.close(reader)
        process.kill()
        process.wait(30)
    end_launcher(tmp_path / "run")


@pytest.mark.parametrize("watched", ["agent", "master"], indirect=True)
def test_a_daemon_whose_loop_is_blocked_sends_nothing_to_the_watchdog(watched: Watched) -> None:
    watched.receives(b"READY=1")
    for _ in range(3):
        watched.receives(b"WATCHDOG=1")
    watched.empty()
    watched.fill()
    watched.process.send_signal(signal.SIGHUP)  # it logs the reloaded keys
    watched.receives_nothing()
    assert watched.process.poll() is None
    watched.empty()
    watched.receives(b"WATCHDOG=1")
    watched.process.send_signal(signal.SIGTERM)
    assert watched.process.wait(60) == 0
