"""Passed descriptors: used once, by their user, soon; those of a task that waits for its place are kept for it."""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.stdio import Stdio
from penstock.client.stdio import pass_stdio

Passed = tuple[str, socket.socket]


@pytest.fixture
async def stdio(tmp_path: Path) -> AsyncIterator[Stdio]:
    held = Stdio(tmp_path / "stdio.sock")
    yield held
    held.close()


@pytest.fixture
async def passed(stdio: Stdio, tmp_path: Path) -> AsyncIterator[tuple[str, socket.socket]]:
    """A token, and the other end of what was passed under it: readable once the agent has closed its copies."""
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


async def test_nobody_keeps_what_is_anothers(stdio: Stdio, passed: Passed) -> None:
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
