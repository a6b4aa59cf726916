"""A machine that is driven over ssh, of any kind."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.vm.host import find, say
from tests.vm.image import Image, ensure_image

_SCRATCH_BYTES = 1024**3
#: How often it is looked whether a machine has ended while a command runs in it.
_LOOK_S = 2.0


class BootError(Exception):
    """The machine did not come up; the message has the end of its console's output."""


class Remote(ABC):
    """A machine with a ``directory`` of its own, gone when the block ends; one connection carries all."""

    def __init__(self) -> None:
        self.directory = Path()

    def __enter__(self) -> Self:
        image = ensure_image()
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-vm-"))
        try:
            self.boot(image)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        self.hang_up()
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    @abstractmethod
    def boot(self, image: Image) -> None:
        """Until ssh answers.

        Raises:
            BootError: it did not come up.
        """

    @abstractmethod
    def kill(self) -> None:
        """Nothing of it runs any longer; it may never have run."""

    @abstractmethod
    def console(self) -> str:
        """Return the end of the console's output; empty before it boots."""

    def standing(self) -> str:
        """Return the known state of a machine that does not answer."""
        return self.console()

    @abstractmethod
    def has_ended(self) -> bool:
        """Whether it ended by itself: its kernel panicked."""

    def scratch(self) -> Path:
        """The machine's second disk, empty, in a file."""
        file = self.directory / "scratch.img"
        with file.open("wb") as empty:
            empty.truncate(_SCRATCH_BYTES)
        subprocess.run([find("mke2fs"), "-q", "-F", "-t", "ext4", "-L", "scratch", str(file)], check=True)
        return file

    @property
    def ssh_config(self) -> Path:
        """For ``ssh -F``: the host is called ``vm``."""
        return self.directory / "ssh_config"

    def ssh(
        self, command: str, *, check: bool = True, timeout_s: float = 300, stdin: IO[bytes] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command as root; its output is kept.

        Raises:
            subprocess.CalledProcessError: it failed and ``check`` is set; its output has been shown.
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
        """Run a shell command as root, its output going where ours goes; returns its exit status, 1 if the machine
        ended meanwhile, which ssh would wait for."""
        with subprocess.Popen(self.ssh_command(command), stdin=subprocess.DEVNULL) as process:
            try:
                while True:
                    try:
                        return process.wait(_LOOK_S)
                    except subprocess.TimeoutExpired:
                        if self.has_ended():
                            say(f"the machine ended while a command ran in it; its console:\n{self.console()}")
                            return 1
            finally:
                process.kill()  # a signal that ends us raises in here, and the block would wait for ssh

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
        """Copy a file or a directory out to ``local``, which is replaced if it exists."""
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
            "KexAlgorithms curve25519-sha256",  # fastest to compute for one emulated processor
            # A machine in user mode whose kernel had lost an interrupt of its network stalled for 17 minutes, until it
            # received another packet. No losses are known any more (docs/benchmarks/lost-events.md).
            "ServerAliveInterval 5", "ServerAliveCountMax 1000",
            "ConnectTimeout 60", *more,
        )  # fmt: skip
        self.ssh_config.write_text("".join(f"{line}\n" for line in lines))

    def connect(self, timeout_s: float) -> str:
        """Make the first connection, which must not hold our pipes; return the error, or an empty text."""
        command = self.ssh_command("true")
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return f"ssh does not answer within {timeout_s:.0f} s"
        return f"ssh does not answer: {done.stderr.strip()}" if done.returncode != 0 else ""

    def hang_up(self) -> None:
        """End the connection."""
        if self.ssh_config.exists():
            ended = ["ssh", "-F", str(self.ssh_config), "-O", "exit", "vm"]
            subprocess.run(ended, capture_output=True, check=False, timeout=30)
