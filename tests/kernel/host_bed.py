"""Agent and master in directories of their own, and the command against them, as a user types it."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from bench.enforcement.bed import Running, when_ready
from penstock.client.blocking import BlockingAgent
from tests import warm_commands
from tests.integration.warm import run

PENSTOCK = Path(sys.executable).with_name("penstock")
TIMEOUT_S = 120
T = TypeVar("T")


class Host:
    """A host with a master of its own, in directories of its own, and the command against it.

    ``typed``: by ``penstock up``, which starts Python four times, and that takes half a minute there; otherwise both
    daemons are forked from a process that has imported them. ``settings`` are configuration keys of the agent,
    ``of_master`` the text of the configuration of a master that was not typed.
    """

    def __init__(self, directory: Path, *, typed: bool = False, of_master: str = "", **settings: object) -> None:
        self.environment = {
            **os.environ,
            "PENSTOCK_RUNTIME_DIR": str(directory / "run"),
            "PENSTOCK_STATE_DIR": str(directory / "state"),
        }
        chosen = {"http": "127.0.0.1:0", "memory_bytes": "512MiB", "rejoin_s": 5, **settings}
        self._log = directory / "up.log"
        #: In the order in which they are stopped.
        self._daemons: list[Running] = []
        if typed:
            self._up(_set(chosen))
        else:
            self._fork(directory / "master.json", of_master, chosen)
        self.socket = directory / "run" / "agent.sock"
        self._agent = BlockingAgent.connect(self.socket, "test")

    def _up(self, settings: list[str]) -> None:
        with self._log.open("wb") as log:
            up = subprocess.Popen(
                [PENSTOCK, "up", *settings], env=self.environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._daemons.append(up)
        assert up.stdout is not None
        if not any(line.startswith("ready") for line in up.stdout):
            raise RuntimeError(self._log.read_text())

    def _fork(self, port_file: Path, of_master: str, settings: dict[str, object]) -> None:
        file = port_file.with_name("master.toml")
        file.write_text(of_master)
        anywhere = {"listen": port_file.with_name("master.sock"), "http": "127.0.0.1:0"}
        self._ready("master", ["--port-file", str(port_file), "--config", str(file), *_set(anywhere)])
        master = json.loads(port_file.read_text())["listen"]
        self._ready("agent", _set({"master": master, **settings}))

    def _ready(self, module: str, arguments: list[str]) -> None:
        daemon = when_ready(lambda more: run(module, arguments, {**self.environment, **more}, self._log), self._log)
        self._daemons.insert(0, daemon)

    def start(self, *arguments: str, user: str = "root") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [warm_commands.penstock() if user == "root" else PENSTOCK, *arguments],
            user=user,
            group=pwd.getpwnam(user).pw_gid,
            extra_groups=[],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def penstock(self, *arguments: str, user: str = "root") -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, user=user)
        out, err = process.communicate(timeout=TIMEOUT_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def status(self) -> dict[str, Any]:
        """Return the output of ``penstock status --json``, which takes seconds here."""
        return self._agent.status()

    def container(self, name: str) -> dict[str, Any]:
        return next(dict(c) for c in self.status()["containers"] if c["name"] == name)

    def close(self) -> None:
        self._agent.close()
        for daemon in self._daemons:
            daemon.send_signal(signal.SIGINT)
            daemon.wait(TIMEOUT_S)


@contextmanager
def running_host(directory: Path, *, typed: bool = False, **settings: object) -> Iterator[Host]:
    """Run a host; its cgroups are removed at its end."""
    host = Host(directory, typed=typed, **settings)
    yield host
    host.close()
    assert_cgroups_go()


def until(condition: Callable[[], T], what: object = "it never came true") -> T:
    """Poll until the condition is true, and return its value: neither files nor the status notify of their changes."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def assert_cgroups_go(pattern: str = "penstock-*") -> None:
    """Check that no such cgroup stays: the launcher removes them once it sees that the agent has gone."""
    until = time.monotonic() + TIMEOUT_S
    while left := list(Path("/sys/fs/cgroup").glob(pattern)):
        assert time.monotonic() < until, f"cgroups are left behind: {left}"
        time.sleep(0.05)


def _set(settings: Mapping[str, object]) -> list[str]:
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


def python(script: str) -> list[str]:
    return ["/usr/bin/python3", "-S", "-E", "-c", textwrap.dedent(script)]
