"""Connections as other users: the kernel reports the user of a connection, so a test as root can be any user for a
moment.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.transport import RpcPeer
from penstock.wire.agent_api import Welcome
from tests.integration.conftest import Client, Recorder

#: Users of every Debian that have no login.
OWNER, STRANGER = "daemon", "bin"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


@contextlib.contextmanager
def identity(user: str, groups: Sequence[int] = ()) -> Iterator[None]:
    """Take on the user's identity for the kernel's checks."""
    entry, before = pwd.getpwnam(user), os.getgroups()
    os.setgroups(list(groups))
    os.setegid(entry.pw_gid)
    os.seteuid(entry.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)


@dataclass
class Callers:
    """Opens connections; closes them."""

    path: Path
    clients: list[Client] = field(default_factory=list)

    async def call_as(self, user: str, groups: Sequence[int] = (), *, hello: bool = True) -> Client:
        import asyncio

        connection = socket.socket(socket.AF_UNIX)
        with identity(user, groups):
            connection.connect(str(self.path))
        recorder = Recorder()
        loop = asyncio.get_running_loop()
        _, peer = await loop.create_unix_connection(lambda: RpcPeer(recorder), sock=connection)
        self.clients.append(Client(peer, recorder))
        if hello:
            welcome = await peer.request("hello", {"protocol": 1, "client": user}, Welcome)
            assert welcome.user == user
        return self.clients[-1]


@contextlib.asynccontextmanager
async def callers(path: Path) -> AsyncIterator[Callers]:
    made = Callers(path)
    try:
        yield made
    finally:
        for client in made.clients:
            client.peer.close()


@contextlib.contextmanager
def open_directory() -> Iterator[Path]:
    """One that other users may enter; pytest's own they may not."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-security-"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
