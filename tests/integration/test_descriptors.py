"""Many connections, and no descriptors left: the agent goes on, keeps some for itself, and names the refused
actions.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agent.connections import SILENT_PER_USER
from penstock.wire.agent_api import Launched
from penstock.wire.errors import RpcError
from tests.unit.agent.launcher.launcher_bed import launcher_pid

Connect = Callable[..., Awaitable[Any]]
Start = Callable[..., Any]


def _silent(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    return connection


def _received(connection: socket.socket) -> bytes:
    connection.settimeout(30)
    return connection.recv(4096)


async def _until(client: Any, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    async with asyncio.timeout(30):
        while True:
            status: dict[str, Any] = (await client.call("status"))["status"]
            if condition(status):
                return status
            await asyncio.sleep(0.05)


async def _launch(client: Any) -> None:
    container = {"argv": ["/bin/true"], "cwd": "/"}
    launched = await client.peer.request("launch", {"container": container}, Launched)
    ended = await client.recorder.wait_for("container_ended")
    assert (ended[-1]["container"], ended[-1]["ended"]["exit_status"]) == (launched.container, 0)


async def test_connections_without_hello_are_bounded(start_agent: Start, connect: Connect) -> None:
    agent = start_agent()
    client = await connect(agent)
    silent = await asyncio.to_thread(lambda: [_silent(str(agent.socket)) for _ in range(2 * SILENT_PER_USER)])
    for connection in silent[SILENT_PER_USER:]:
        connection.settimeout(30)
        said = await asyncio.to_thread(connection.recv, 4096)
        assert b"without hello" in said
    for connection in silent[:SILENT_PER_USER]:
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(4096)
        connection.close()
    await _launch(client)


async def test_descriptors_are_kept_for_the_agent_s_own_work(start_agent: Start, connect: Connect) -> None:
    agent = start_agent()
    client = await connect(agent)
    resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, (200, 200))
    silent = await asyncio.to_thread(lambda: [_silent(str(agent.socket)) for _ in range(220)])
    said = await asyncio.to_thread(lambda: [_received(connection) for connection in silent[160:]])
    assert all(b"short of file descriptors" in each for each in said)
    before = (await client.call("status"))["status"]["host"]
    status = await _until(client, lambda status: status["host"] != before)
    assert status["degraded"] == []
    await _launch(client)
    for connection in silent:
        connection.close()
    await client.call("status")  # they are gone when this is answered
    await _launch(await connect(agent))


async def test_no_descriptors_are_a_degraded_state(start_agent: Start, connect: Connect) -> None:
    agent = start_agent()
    client = await connect(agent)
    before = resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, (4, before[1]))
    status = await _until(client, lambda status: bool(status["degraded"]))
    assert "Too many open files" in status["degraded"][0]["why"]
    resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, before)
    await _until(client, lambda status: not status["degraded"])
    await _launch(client)


async def test_a_launcher_without_descriptors_refuses_starts(start_agent: Start, connect: Connect) -> None:
    agent = start_agent()
    launcher = launcher_pid(agent.socket.parent)
    before = resource.prlimit(launcher, resource.RLIMIT_NOFILE)
    resource.prlimit(launcher, resource.RLIMIT_NOFILE, (4, before[1]))
    with pytest.raises(RpcError, match="the launcher has no free file descriptor"):
        await _launch(await connect(agent))
    resource.prlimit(launcher, resource.RLIMIT_NOFILE, before)
    await _launch(await connect(agent))
    assert launcher_pid(agent.socket.parent) == launcher
