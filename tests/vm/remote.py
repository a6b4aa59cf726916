"""A machine that is driven over ssh, whatever it runs on."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import IO

from tests.vm.host import say
from tests.vm.image import Image


class Remote:
    """What a machine with a ``directory`` of its own is asked over ssh; the first connection carries all later ones."""

    directory: Path

    @property
    def ssh_config(self) -> Path:
        """For ``ssh -F``: the host is called ``vm``."""
        return self.directory / "ssh_config"

    def ssh(
        self, command: str, *, check: bool = True, timeout_s: float = 300, stdin: IO[bytes] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command as root; its output is kept.

        Raises:
            subprocess.CalledProcessError: it failed and ``check`` is set; what it said has been shown.
            subprocess.TimeoutExpired: it took longer.
        """
        done = subprocess.run(
            self.ssh_command(command),
            stdin=stdin if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode != 0:
            say(f"failed in the machine: {command}\n{done.stdout}{done.stderr}")
            done.check_returncode()
        return done

    def stream(self, command: str) -> int:
        """Run a shell command as root, its output going where ours goes; returns its exit status."""
        return subprocess.run(self.ssh_command(command), stdin=subprocess.DEVNULL, check=False).returncode

    def shell(self) -> int:
        """An interactive shell of root's."""
        return subprocess.run(["ssh", "-t", *self.ssh_command("")[1:-1]], check=False).returncode

    def ssh_command(self, command: str) -> list[str]:
        """The command on the host that runs a shell command in the machine."""
        return ["ssh", "-F", str(self.ssh_config), "vm", command]

    def put(self, local: Path, remote: str) -> None:
        """Copy a file or a directory in."""
        self._copy(str(local), f"vm:{remote}")

    def get(self, remote: str, local: Path) -> None:
        """Copy a file or a directory out; ``local`` is what it is called afterwards, replaced if it is there."""
        if local.is_dir():
            shutil.rmtree(local)
        local.parent.mkdir(parents=True, exist_ok=True)
        self._copy(f"vm:{remote}", str(local))

    def _copy(self, source: str, target: str) -> None:
        command = ["scp", "-q", "-r", "-F", str(self.ssh_config), source, target]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            say(f"failed: copy {source} to {target}: {done.stderr.strip()}")
            done.check_returncode()

    def write_ssh_config(self, image: Image, address: str, *more: str) -> None:
        """How it is reached: its address, and further lines."""
        lines = (
            "Host vm", f"HostName {address}", "User root", f"IdentityFile {image.key}", "IdentitiesOnly yes",
            "StrictHostKeyChecking no", "UserKnownHostsFile /dev/null", "LogLevel ERROR",
            "ControlMaster auto", f"ControlPath {self.directory}/ssh", "ControlPersist yes",
            "KexAlgorithms curve25519-sha256",  # what one emulated processor computes fastest
            "ConnectTimeout 60", *more,
        )  # fmt: skip
        self.ssh_config.write_text("".join(f"{line}\n" for line in lines))

    def connect(self, timeout_s: float) -> str:
        """Make the first connection, which must not hold our pipes; returns what is wrong, or nothing."""
        command = self.ssh_command("true")
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        return f"ssh does not answer: {done.stderr.strip()}" if done.returncode != 0 else ""

    def hang_up(self) -> None:
        """End the connection."""
        if self.ssh_config.exists():
            ended = ["ssh", "-F", str(self.ssh_config), "-O", "exit", "vm"]
            subprocess.run(ended, capture_output=True, check=False, timeout=30)
