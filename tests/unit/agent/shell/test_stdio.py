"""Passed descriptors: used once, by their user, soon; those of a task that waits for its place are kept for it."""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from agent import peer_credentials
from agent.peer_credentials import credentials_of
from agent.stdio import UNCLAIMED_PER_USER, Stdio
from penstock.client.errors import AgentUnavailable
from penstock.client.stdio import pass_stdio

Passed = tuple[str, socket.socket]


@pytest.fixture
async def stdio(tmp_path: Path) -> AsyncIterator[Stdio]:
    held = Stdio(tmp_path / "stdio.sock")
    yield held
    held.close()


@pytest.fixture
async def passed(stdio: Stdio, tmp_path: Path) -> AsyncIterator[tuple[str, socket.socket]]:
    """Return a token, and the other end of the pipe passed under it: readable once the agent has closed its copies."""
    theirs, ours = socket.socketpair()
    with theirs:
        number = theirs.fileno()
        token = await asyncio.to_thread(pass_stdio, tmp_path / "agent.sock", (number, number, number))
    ours.setblocking(False)
    with ours:
        yield token, ours


def closed(other_end: socket.socket) -> bool:
    try:
        return other_end.recv(1) == b""
    except BlockingIOError:
        return False


async def passes(directory: Path, ends: list[int]) -> str:
    """Pass the write ends of three pipes; append the read ends; return the token."""
    pipes = [os.pipe() for _ in range(3)]
    ends += [end for end, _ in pipes]
    written = (pipes[0][1], pipes[1][1], pipes[2][1])
    try:
        return await asyncio.to_thread(pass_stdio, directory / "agent.sock", written)
    finally:
        for descriptor in written:
            os.close(descriptor)


def me() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


async def test_unclaimed_ones_are_closed_in_time(stdio: Stdio, passed: Passed) -> None:
    token, other_end = passed
    assert not closed(other_end)
    stdio._expire(token)
    assert closed(other_end)
    with pytest.raises(FileNotFoundError, match="timed out"):
        stdio.take(token, me())


async def test_a_waiting_tasks_are_kept(stdio: Stdio, passed: Passed) -> None:
    token, other_end = passed
    stdio.keep(token, me(), session=3)
    stdio._expire(token)
    descriptors = stdio.take(token, me())
    assert not closed(other_end)
    for descriptor in descriptors:
        os.close(descriptor)
    assert closed(other_end)


async def test_they_go_with_their_connection(stdio: Stdio, passed: Passed) -> None:
    token, other_end = passed
    stdio.keep(token, me(), session=3)
    stdio.drop(4)
    assert not closed(other_end)
    stdio.drop(3)
    assert closed(other_end)


async def test_descriptors_of_others_cannot_be_kept(stdio: Stdio, passed: Passed) -> None:
    token, other_end = passed
    stdio.keep(token, "somebody", session=3)
    stdio._expire(token)
    assert closed(other_end)


async def test_those_of_a_refused_launch_are_closed_at_once(stdio: Stdio, passed: Passed) -> None:
    token, other_end = passed
    stdio.refuse(token, "somebody")
    assert not closed(other_end)
    stdio.refuse(token, me())
    assert closed(other_end)


async def test_a_client_without_a_name_passes_them_under_that_of_its_launch(
    stdio: Stdio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(uid: int) -> NoReturn:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(peer_credentials, "_own_name", peer_credentials._name)
    ends: list[int] = []
    token = await passes(tmp_path, ends)
    one, other = socket.socketpair()
    with one, other:
        user = credentials_of(one).user
    assert user == f"uid:{os.getuid()}"
    taken = stdio.take(token, user)
    for number, (descriptor, end) in enumerate(zip(taken, ends, strict=True)):
        os.write(descriptor, bytes([number]))
        os.close(descriptor)
        assert (os.read(end, 2), os.read(end, 1)) == (bytes([number]), b""), "usable, and no other copy is open"
        os.close(end)


async def test_those_that_cannot_be_held_are_closed(
    stdio: Stdio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[int] = []
    monkeypatch.setattr("agent.stdio._TOKEN", re.compile(rb"none"))
    with pytest.raises(AgentUnavailable, match="did not take the standard streams"):
        await passes(tmp_path, ends)
    for end in ends:
        os.set_blocking(end, False)
        assert os.read(end, 1) == b""
        os.close(end)


@pytest.mark.parametrize("comes", ["with the connection", "later"])
async def test_a_message_that_comes_with_the_connection_is_read_without_waiting_for_it(
    stdio: Stdio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes: str
) -> None:
    loop, watched, waits = asyncio.get_running_loop(), list[socket.socket](), asyncio.Event()
    genuine = loop.add_reader

    def watch(connection: socket.socket, *call: Any) -> None:
        watched.append(connection)
        waits.set()
        genuine(connection, *call)

    monkeypatch.setattr(stdio, "_loop", SimpleNamespace(add_reader=watch, call_later=loop.call_later,
                                                        remove_reader=loop.remove_reader))  # fmt: skip
    descriptors = [os.open(os.devnull, os.O_RDWR) for _ in range(3)]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(tmp_path / "stdio.sock"))
        client.setblocking(False)
        if comes == "later":
            await asyncio.wait_for(waits.wait(), LIMIT_S)
        socket.send_fds(client, [b"0" * 32], descriptors)
        assert await asyncio.wait_for(loop.sock_recv(client, 2), LIMIT_S) == b"+"
    assert len(watched) == (comes == "later")
    descriptors += stdio.take("0" * 32, me())
    assert not any(os.get_inheritable(each) for each in descriptors), "no child of the agent's gets them"
    for descriptor in descriptors:
        os.close(descriptor)


# ---------------------------------------------------------------- connections
# Idle connections cannot take all of the agent's own descriptors.

LIMIT_S = 30


async def test_one_user_cannot_hold_any_number_of_silent_connections(tmp_path: Path) -> None:
    stdio = Stdio(tmp_path / "stdio.sock")
    loop = asyncio.get_running_loop()
    silent: list[socket.socket] = []

    async def connected() -> socket.socket:
        one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        one.setblocking(False)
        silent.append(one)
        await loop.sock_connect(one, str(tmp_path / "stdio.sock"))
        return one

    async with asyncio.timeout(LIMIT_S):
        for _ in range(UNCLAIMED_PER_USER):
            await connected()
        assert await loop.sock_recv(await connected(), 1) == b"", "one too many is hung up on"
        descriptors = [os.open(os.devnull, os.O_RDWR) for _ in range(3)]
        socket.send_fds(silent[0], [b"0" * 32], descriptors)
        assert await loop.sock_recv(silent[0], 1) == b"+", "those that there are are served"
        socket.send_fds(await connected(), [b"1" * 32], descriptors)
        assert await loop.sock_recv(silent[-1], 1) == b"+", "and make room for others"
    for descriptor in descriptors:
        os.close(descriptor)
    for one in silent:
        one.close()
    stdio.close()
