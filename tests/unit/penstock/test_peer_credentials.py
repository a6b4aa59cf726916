"""No client sends anything to a server of another user, and no path that another user made is believed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from penstock import paths
from penstock.client import AgentClient, AgentUnavailable
from penstock.client.blocking import BlockingAgent
from penstock.client.gate import Gate
from penstock.client.session import Session
from penstock.client.stdio import pass_stdio
from penstock.peer_credentials import check_server, is_private, peer_uid

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
STRANGER = pwd.getpwnam("nobody")


class Trap:
    """Both sockets of an agent, on which another user listens; keeps the data that clients send there."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "agent.sock"
        self._stream = self._listen(self.path, socket.SOCK_STREAM)
        self._packets = self._listen(directory / "stdio.sock", socket.SOCK_SEQPACKET)

    @staticmethod
    def _listen(path: Path, kind: int) -> socket.socket:
        listening = socket.socket(socket.AF_UNIX, kind)
        listening.bind(str(path))
        os.seteuid(STRANGER.pw_uid)  # the kernel records the user that calls listen()
        try:
            listening.listen()
        finally:
            os.seteuid(0)
        listening.setblocking(False)
        return listening

    def received(self) -> bytes:
        """Everything that was sent by clients that have closed their connections."""
        data = b""
        for listening in (self._stream, self._packets):
            while True:
                try:
                    connection, _ = listening.accept()
                except BlockingIOError:
                    break
                with connection:
                    connection.settimeout(5)
                    data += connection.recv(65536)
        return data

    def close(self) -> None:
        self._stream.close()
        self._packets.close()


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[Trap]:
    made = Trap(tmp_path)
    yield made
    made.close()


async def test_the_asyncio_client_sends_nothing_to_another_user(trap: Trap) -> None:
    with pytest.raises(AgentUnavailable, match=r"runs as nobody, neither as root nor as you; remove that file"):
        await AgentClient.connect(trap.path)
    with pytest.raises(AgentUnavailable, match="runs as nobody"):
        await asyncio.to_thread(pass_stdio, trap.path, (0, 1, 2))
    assert await asyncio.to_thread(trap.received) == b""


def test_the_blocking_client_and_the_command_send_nothing_to_another_user(trap: Trap) -> None:
    with pytest.raises(AgentUnavailable, match="runs as nobody"):
        BlockingAgent.connect(trap.path)
    with pytest.raises(AgentUnavailable, match="runs as nobody"):
        Session.connect(trap.path, "test")
    with pytest.raises(AgentUnavailable, match="runs as nobody"):
        pass_stdio(trap.path, (0, 1, 2))
    assert trap.received() == b""


def test_a_gate_sends_nothing_to_another_user_and_fails_open(trap: Trap) -> None:
    said: list[str] = []
    warned = Event()

    def warn(line: str) -> None:
        said.append(line)
        warned.set()

    with Gate("test", socket=trap.path, patience_s=2.0, warn=warn) as gate, gate.acquire("cpu", 1):
        assert warned.wait(10)
    assert "runs as nobody" in said[0]
    assert trap.received() == b""


def test_servers_of_root_and_of_oneself_are_trusted(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as client:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        client.connect(str(tmp_path / "s"))
        assert peer_uid(client) == os.geteuid()
        check_server(client, tmp_path / "s")


@pytest.fixture
def as_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PENSTOCK_RUNTIME_DIR", "PENSTOCK_SOCKET", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER.pw_uid)


def _own(path: Path, uid: int, mode: int) -> Path:
    path.mkdir()
    (path / "agent.sock").touch()
    path.chmod(mode)
    os.chown(path, uid, -1)
    return path


@pytest.mark.usefixtures("as_stranger")
@pytest.mark.parametrize(
    ("uid", "mode", "trusted"),
    [
        (STRANGER.pw_uid, 0o700, True),
        (0, 0o755, True),
        (STRANGER.pw_uid + 7, 0o755, False),
        (STRANGER.pw_uid + 7, 0o700, False),  # whose content must not even be read
        (STRANGER.pw_uid, 0o777, False),
        (STRANGER.pw_uid, 0o770, False),
    ],
)
def test_a_directory_that_another_user_can_change_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, mode: int, trusted: bool
) -> None:
    own = _own(tmp_path / "own", uid, mode)
    monkeypatch.setattr(paths, "runtime_dir", lambda: own)
    monkeypatch.setattr(paths, "SYSTEM", tmp_path / "own" / "agent.sock" if trusted else tmp_path)
    assert is_private(own) == trusted
    assert paths.agent_socket() == (own / "agent.sock" if trusted else tmp_path)


@pytest.mark.usefixtures("as_stranger")
def test_a_link_of_another_user_to_one_s_own_directory_is_a_trap(tmp_path: Path) -> None:
    own = _own(tmp_path / "own", STRANGER.pw_uid, 0o700)
    link = tmp_path / "link"
    link.symlink_to(own)
    os.lchown(link, STRANGER.pw_uid + 7, -1)
    assert not is_private(link)
    with pytest.raises(PermissionError, match="another user"):
        paths.make_private(link)


def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match="chmod go-w"):
        paths.make_private(tmp_path)
    assert not is_private(tmp_path / "nothing")


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
async def test_a_client_that_finds_the_queue_full_waits_for_it(tmp_path: Path, kind: socket.SocketKind) -> None:
    """asyncio takes a full queue for a connection, whose other end runs as no user: the advice was "remove that
    file".
    """
    path = tmp_path / ("agent.sock" if kind is socket.SOCK_STREAM else "stdio.sock")
    with socket.socket(socket.AF_UNIX, kind) as listening, contextlib.ExitStack() as others:
        listening.bind(str(path))
        listening.listen(1)
        listening.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                other = others.enter_context(socket.socket(socket.AF_UNIX, kind))
                other.setblocking(False)
                other.connect(str(path))
        late: asyncio.Task[object]
        if kind is socket.SOCK_STREAM:
            late = asyncio.create_task(AgentClient.connect(path))
        else:
            late = asyncio.create_task(asyncio.to_thread(pass_stdio, path, (0, 1, 2)))
        await asyncio.sleep(0.05)
        assert not late.done(), "it waits"
        taken = []
        for _ in range(100):
            with contextlib.suppress(BlockingIOError):
                taken.append(others.enter_context(listening.accept()[0]))
            await asyncio.sleep(0.01)
            if any(_said(one) for one in taken):
                break
        else:
            pytest.fail("it did not come in")
        late.cancel()
        await asyncio.wait([late])


def _said(connection: socket.socket) -> bytes:
    connection.setblocking(False)
    try:
        return connection.recv(4096)
    except BlockingIOError:
        return b""
