"""No file descriptors for a while: nothing is lost by it, and no file is retried again and again."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent import cgroup_retries, stdio
from agent.core import events as e
from agent.core import instructions as i
from agent.executor import Executor
from agent.journal import Journal
from agent.launcher import Exited
from agent.limit_enforcer import LimitEnforcer
from agent.stdio import Stdio
from penstock.model import ContainerSpec
from penstock.trouble import Troubles
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import ContainerRef, Launch
from tests.unit.agent.shell.shell_bed import make_shell

LIMIT_S = 30


class Full:
    """A tree whose files cannot be opened the first times; with an error of another kind, never."""

    controllers = ("cpu",)

    def __init__(self, times: int, number: int = errno.EMFILE) -> None:
        self.left = times
        self.number = number
        self.killed = 0
        self.frozen: list[bool] = []
        self.changed = asyncio.Event()

    def get(self, container: str) -> Full:
        return self

    def populated(self) -> bool:
        return True

    def open(self) -> None:
        self.left -= 1
        if self.left >= 0:
            raise OSError(self.number, os.strerror(self.number))
        self.changed.set()

    def end(self, lives: bool) -> None:
        assert lives
        self.kill()

    def kill(self) -> None:
        self.open()
        self.killed += 1

    def freeze(self, frozen: bool) -> None:
        self.open()
        self.frozen.append(frozen)

    async def change(self) -> None:
        await asyncio.wait_for(self.changed.wait(), LIMIT_S)


def made(tree: Full) -> tuple[Executor, asyncio.Queue[Any]]:
    told: asyncio.Queue[Any] = asyncio.Queue()
    limit_enforcer = LimitEnforcer(None, None, lambda *_: None)
    one = Executor(cast(Any, SimpleNamespace()), cast(Any, tree), limit_enforcer, *cast(Any, (None, None)))
    one.on_event = told.put_nowait
    return one, told


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_the_end_of_a_container_waits_for_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup_retries, "AGAIN_S", 0.001)
    tree = Full(3)
    one, told = made(tree)
    one.exited(Exited("c-1", 7, None, 0.5, 1, 100.0))
    ended = await asyncio.wait_for(told.get(), LIMIT_S)
    assert isinstance(ended, e.ContainerExited)
    assert (ended.container, ended.exit_status, tree.killed) == ("c-1", 7, 1)


async def test_a_kill_waits_for_descriptors_and_holds_up_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup_retries, "AGAIN_S", 0.001)
    tree = Full(3)
    one, _ = made(tree)
    monkeypatch.setattr(one, "start", lambda instruction: None)
    shell = make_shell(Journal(tmp_path), one)
    container = shell.dispatch(e.Requested(m.LAUNCH, 1, Launch(container=ContainerSpec(argv=("x",)))))
    assert isinstance(container, str)
    shell.dispatch(e.ContainerStarted(container, 7, {}, 0.0))
    shell.dispatch(e.Requested(m.KILL, 1, ContainerRef(container=container)))
    assert tree.killed == 0
    await tree.change()
    assert tree.killed == 1


async def test_the_latest_freeze_or_thaw_waits_for_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup_retries, "AGAIN_S", 0.001)
    tree = Full(3)
    one, _ = made(tree)
    one.freeze("c-1", frozen=True)
    one.freeze("c-1", frozen=False)
    await tree.change()
    assert tree.frozen == [False]


async def test_nothing_is_done_to_a_container_that_has_ended_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup_retries, "AGAIN_S", 0.001)
    tree = Full(2)
    one, told = made(tree)
    one.freeze("c-1", frozen=True)
    one.exited(Exited("c-1", 7, None, 0.5, 1, 100.0))
    await asyncio.wait_for(told.get(), LIMIT_S)
    assert (tree.frozen, tree.killed) == ([], 1)


async def test_another_error_is_not_waited_out() -> None:
    one, _ = made(Full(1, errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        one.exited(Exited("c-1", 7, None, 0.5, 1, 100.0))


async def test_a_start_whose_files_do_not_all_open_keeps_none_open(tmp_path: Path) -> None:
    one = Executor(*cast(Any, (None, None, None, None, tmp_path)))
    told: asyncio.Queue[Any] = asyncio.Queue()
    one.on_event = told.put_nowait
    (tmp_path / "c-1" / "stderr").mkdir(parents=True)  # no file opens there
    before = descriptors()
    one.start(i.StartContainer("c-1", "somebody", ContainerSpec(argv=("x",))))
    await one.settle()
    assert descriptors() == before
    refused = told.get_nowait()
    assert isinstance(refused, e.ContainerNotStarted) and "Is a directory" in refused.message


async def test_connections_wait_while_none_can_be_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "_FULL_WAIT_S", 0.05)
    taking = Stdio(tmp_path / "stdio.sock")
    real, tried = taking._socket, 0

    def accept() -> tuple[socket.socket, Any]:
        nonlocal tried
        tried += 1
        if tried <= 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return real.accept()

    taking._socket = cast(Any, SimpleNamespace(accept=accept, fileno=real.fileno, close=real.close))
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.setblocking(False)
        await loop.sock_connect(client, str(tmp_path / "stdio.sock"))
        socket.send_fds(client, [b"0" * 32], [0, 1, 2])
        assert await asyncio.wait_for(loop.sock_recv(client, 1), LIMIT_S) == b"+"
    assert tried == 3, "and not as often as the loop turns"
    taking.close()


async def test_clients_get_none_of_the_last_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio.process, "descriptors_for_clients", lambda: 3)
    taking = Stdio(tmp_path / "stdio.sock")
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.setblocking(False)
        await loop.sock_connect(client, str(tmp_path / "stdio.sock"))
        assert await asyncio.wait_for(loop.sock_recv(client, 1), LIMIT_S) == b""
    taking.close()


async def test_a_trouble_is_shown_while_it_lasts() -> None:
    async def works() -> None:
        return

    async def fails() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    troubles = Troubles()
    for _ in range(2):
        await troubles.survive("samples", fails())
    (row,) = troubles.rows()
    assert (row.what, row.why, row.times) == ("samples", "[Errno 24] Too many open files", 2)
    await troubles.survive("outputs", works())
    assert len(troubles.rows()) == 1
    await troubles.survive("samples", works())
    assert troubles.rows() == []
