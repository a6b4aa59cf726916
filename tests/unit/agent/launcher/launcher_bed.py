"""A launcher of the test's own, without cgroups, as a client sees it."""

from __future__ import annotations

import asyncio
import os
import pwd
import select
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from agent.launcher import Exited, Launcher, Start

#: The user who runs the tests.
ME = pwd.getpwuid(os.geteuid()).pw_name
TIMEOUT_S = 30


@contextmanager
def opened(path: Path | str, flags: int = os.O_RDWR) -> Iterator[int]:
    """A descriptor that is closed at the end."""
    descriptor = os.open(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class Client:
    """A launcher's client that keeps its messages."""

    launcher: Launcher

    def __init__(self) -> None:
        self.exits: asyncio.Queue[Exited] = asyncio.Queue()
        self.lost = asyncio.Event()

    @classmethod
    async def connect(
        cls, runtime: Path, *, spawn: bool = True, cgroup_root: Path | None = None, leave_after_s: float = 0.0
    ) -> Self:
        """Connect to the launcher of a directory; ``spawn``: start it if none answers."""
        made = cls()
        made.launcher = await Launcher.connect(
            runtime, made.exits.put_nowait, on_lost=made.lost.set, spawn=spawn, cgroup_root=cgroup_root,
            leave_after_s=leave_after_s,
        )  # fmt: skip
        return made

    async def exited(self) -> Exited:
        """The next exit."""
        async with asyncio.timeout(TIMEOUT_S):
            return await self.exits.get()

    async def start(
        self, container: str, *argv: str, stdout: int | None = None, procs_fd: int | None = None, **fields: object
    ) -> int:
        """Start a command, its output into ``stdout`` (a descriptor) if given; ``fields`` are those of ``Start``."""
        with opened(os.devnull) as nothing:
            return await self.launcher.start(
                start(container, *argv, **fields),
                procs_fd=procs_fd,
                stdio=(nothing, nothing if stdout is None else stdout, nothing),
            )

    async def output(self, *argv: str, **fields: object) -> str:
        """Return a command's output until it ends."""
        reading, writing = os.pipe()
        try:
            await self.start("prints", *argv, stdout=writing, **fields)
        finally:
            os.close(writing)
        with os.fdopen(reading) as pipe:
            text = await asyncio.to_thread(pipe.read)
        assert (await self.exited()).container == "prints"
        await self.launcher.acknowledge("prints")
        return text


class Pipe:
    """``reading`` has no end while a process holds ``writing``."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()

    def close_writing(self) -> None:
        """Once; its number may be another's afterwards."""
        if self.writing >= 0:
            os.close(self.writing)
        self.writing = -1

    async def end(self) -> None:
        """Wait until no process holds the other end, ourselves included."""
        self.close_writing()
        assert (await asyncio.to_thread(select.select, [self.reading], [], [], TIMEOUT_S))[0], "a process holds it"
        assert os.read(self.reading, 1) == b""


def start(container: str, *argv: str, **fields: object) -> Start:
    """Start a command with the defaults of an undemanding client."""
    values: dict[str, object] = {"user": ME, "env": {}, "cwd": "/", **fields}
    return Start(container=container, argv=argv, **values)  # type: ignore[arg-type]


Connect = Callable[..., Awaitable[Client]]


def launcher_pid(runtime: Path) -> int:
    """Return the pid of the listening process."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(str(runtime / "launcher.sock"))
        return int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], "little")


def end(pid: int) -> None:
    """SIGTERM, and wait: it is not our child as far as subprocess knows, but the kernel knows better."""
    try:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        return
