"""An agent and a master of the demo's own: ``penstock up`` with private directories and free ports."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

#: Emulated machines take their time to import.
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
_POLL_S = 0.05


class NodeFailed(Exception):  # noqa: N818 - named for what the reader is told
    """Why Penstock did not start: what it said last."""


class Node(NamedTuple):
    """Where it answers, and its own processes (not those of containers)."""

    socket: Path
    http: str
    processes: list[psutil.Process]

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time that Penstock itself has taken, by command line."""
        used: dict[str, float] = {}
        for process in self.processes:
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                name = " ".join(process.cmdline()[1:5])
                used[name] = used.get(name, 0.0) + times.user + times.system
        return used


@contextlib.contextmanager
def running(directory: Path, agent: dict[str, str], master: dict[str, str]) -> Iterator[Node]:
    """Penstock with these settings, up while inside; ended in order on the way out, whatever happened.

    Raises:
        NodeFailed: it did not start; the message has the end of its log.
    """
    ports, log = directory / "ports.json", directory / "penstock.log"
    command = [sys.executable, "-m", "penstock.cli.main", "up", "--port-file", str(ports)]
    for option, settings in (("--set", agent), ("--master-set", master)):
        command += [part for key, value in settings.items() for part in (option, f"{key}={value}")]
    environment = os.environ | {
        "PENSTOCK_RUNTIME_DIR": str(directory / "run"),
        "PENSTOCK_STATE_DIR": str(directory / "state"),
    }
    environment.pop("PENSTOCK_SOCKET", None)
    with log.open("wb") as output:
        # A session of its own: a Ctrl-C is ours to handle, in order.
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        _wait(process, ports, log)
        said = json.loads(ports.read_text(encoding="utf-8"))
        up = psutil.Process(process.pid)
        yield Node(Path(said["socket"]), said["agent_http"], [up, *up.children(recursive=True)])
    finally:
        _stop(process)


def _wait(process: subprocess.Popen[bytes], ports: Path, log: Path) -> None:
    give_up = time.monotonic() + START_TIMEOUT_S
    while not ports.exists():
        if process.poll() is not None:
            raise NodeFailed(f"penstock up ended with status {process.returncode}: {_tail(log)}")
        if time.monotonic() > give_up:
            raise NodeFailed(f"penstock up is not ready after {START_TIMEOUT_S:g} s: {_tail(log)}")
        time.sleep(_POLL_S)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.wait()


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return " | ".join(lines[-5:]) or "it said nothing"
