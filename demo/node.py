"""An agent and a master of the demo's own: ``penstock up`` with private directories and free ports."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

#: Emulated machines take their time to import.
START_TIMEOUT_S = 90.0
SETTLE_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 30.0
_POLL_S = 0.05


class NodeFailed(Exception):  # noqa: N818 - named for the reader of the message
    """Penstock did not start; the message has the end of its log."""


class Node(NamedTuple):
    """Where it answers, and its own processes (not those of containers)."""

    socket: Path
    http: str
    processes: dict[str, psutil.Process]

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time that Penstock itself has taken since it started, by process."""
        used: dict[str, float] = {}
        for name, process in self.processes.items():
            times = process.cpu_times()
            used[name] = times.user + times.system
        return used


@contextlib.contextmanager
def running(directory: Path, agent: dict[str, str], master: dict[str, str]) -> Iterator[Node]:
    """Run Penstock with these settings in the block; end it in order afterwards, also after an error.

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
    node = None
    try:
        _wait(process, ports, log)
        said = json.loads(ports.read_text(encoding="utf-8"))
        up = psutil.Process(process.pid)
        processes = {_module(each): each for each in [up, *up.children(recursive=True)]}
        node = Node(Path(said["socket"]), said["agent_http"], processes)
        yield node
    finally:
        try:
            if node is not None:
                _settle(node)
        finally:  # another Ctrl-C ends the wait, and leaves nothing running, either
            _stop(process)


def _module(process: psutil.Process) -> str:
    """Return the command of ``python -m`` for a module there."""
    line = process.cmdline()
    return line[line.index("-m") + 1] if "-m" in line[:-1] else line[0]


def _wait(process: subprocess.Popen[bytes], ports: Path, log: Path) -> None:
    give_up = time.monotonic() + START_TIMEOUT_S
    while not ports.exists():
        if process.poll() is not None:
            raise NodeFailed(f"penstock up ended with status {process.returncode}: {_tail(log)}")
        if time.monotonic() > give_up:
            raise NodeFailed(f"penstock up is not ready after {START_TIMEOUT_S:g} s: {_tail(log)}")
        time.sleep(_POLL_S)


def _settle(node: Node) -> None:
    """Until the containers of clients that went away have ended: an agent that is stopped leaves running ones alone."""
    give_up = time.monotonic() + SETTLE_TIMEOUT_S
    while time.monotonic() < give_up:
        try:
            with urllib.request.urlopen(f"http://{node.http}/status", timeout=SETTLE_TIMEOUT_S) as answer:
                containers = json.load(answer)["containers"]
        except OSError:
            return  # it is gone already
        if all(container["ended"] is not None for container in containers):
            return
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
