"""The watchdog follows the event loop: what the service manager hears while a daemon's loop goes round, and while not.

A loop is blocked as in life: by standard error, a pipe that nobody empties. The process is not stopped.
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
#: What a loop that is not blocked says meanwhile is less.
MOST = 20


@dataclass
class Watched:
    """A daemon, what it says to its service manager, and what it writes."""

    process: subprocess.Popen[bytes]
    manager: socket.socket
    stderr: int
    seen: bytearray = field(default_factory=bytearray)

    def hears(self, state: bytes) -> None:
        """Until the daemon says it."""
        self.manager.settimeout(START_TIMEOUT_S)
        try:
            while state not in self.manager.recv(4096).split(b"\n"):
                pass
        except TimeoutError:
            pytest.fail(f"no {state!r}; it wrote: {bytes(self.seen)!r}")

    def hears_nothing(self) -> None:
        """From some moment on; what was said before it was blocked may still come."""
        self.manager.settimeout(SILENT_S)
        with pytest.raises(TimeoutError):
            for _ in range(MOST):
                self.manager.recv(4096)

    def fill(self) -> None:
        """Whoever writes one more byte to standard error waits."""
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
def test_a_daemon_whose_loop_is_blocked_says_nothing_to_the_watchdog(watched: Watched) -> None:
    watched.hears(b"READY=1")
    for _ in range(3):
        watched.hears(b"WATCHDOG=1")
    watched.empty()
    watched.fill()
    watched.process.send_signal(signal.SIGHUP)  # it says in its log what it has reloaded
    watched.hears_nothing()
    assert watched.process.poll() is None
    watched.empty()
    watched.hears(b"WATCHDOG=1")
    watched.process.send_signal(signal.SIGTERM)
    assert watched.process.wait(60) == 0
