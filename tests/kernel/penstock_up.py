"""``penstock up`` in directories of its own, and the command against it, as a user types it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from penstock.client.blocking import BlockingAgent

PENSTOCK = Path(sys.executable).with_name("penstock")
TIMEOUT_S = 120


class Host:
    """``penstock up`` in directories of its own, and the command against it."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.environment = {
            **os.environ,
            "PENSTOCK_RUNTIME_DIR": str(directory / "run"),
            "PENSTOCK_STATE_DIR": str(directory / "state"),
        }
        chosen = {"http": "127.0.0.1:0", "memory_bytes": "512MiB", "rejoin_s": 5, **settings}
        log = (directory / "up.log").open("wb")
        self.up = subprocess.Popen(
            [PENSTOCK, "up", *(part for key, value in chosen.items() for part in ("--set", f"{key}={value}"))],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert self.up.stdout is not None
        for line in self.up.stdout:
            if line.startswith("ready"):
                self._agent = BlockingAgent.connect(directory / "run" / "agent.sock", "test")
                return
        raise RuntimeError((directory / "up.log").read_text())

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [PENSTOCK, *arguments],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def penstock(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=TIMEOUT_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def status(self) -> dict[str, Any]:
        """What ``penstock status --json`` prints, which takes seconds here."""
        return self._agent.status()

    def container(self, name: str) -> dict[str, Any]:
        return next(dict(c) for c in self.status()["containers"] if c["name"] == name)

    def close(self) -> None:
        self._agent.close()
        self.up.send_signal(signal.SIGINT)
        self.up.wait(TIMEOUT_S)


def python(script: str) -> list[str]:
    return ["/usr/bin/python3", "-S", "-E", "-c", textwrap.dedent(script)]
