"""A real agent and a client that asks and does not read: its answers are not made."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgpack

Connect = Callable[..., Awaitable[Any]]
Start = Callable[..., Any]
#: Of 256 KiB each: 50 MiB of each connection, which alone is not too much, and 200 MiB together.
_REQUESTS, _CONNECTIONS = 200, 4
_MOST_BYTES = 64 * 1024 * 1024


def _resident_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


async def test_answers_that_are_not_read_are_not_made(start_agent: Start, connect: Connect) -> None:
    agent = start_agent()
    client = await connect(agent)
    script = "head -c 300000 /dev/zero"
    launched = await client.call("launch", container={"argv": ["/bin/sh", "-c", script], "cwd": "/", "detach": True})
    await client.recorder.wait_for("container_ended")
    before = _resident_bytes(agent.process.pid)
    asked = [[0, number, "output", [{"container": launched["container"]}]] for number in range(1, _REQUESTS + 1)]
    with contextlib.ExitStack() as open_ones:
        for _ in range(_CONNECTIONS):
            greedy = open_ones.enter_context(socket.socket(socket.AF_UNIX))
            greedy.settimeout(30)
            greedy.connect(str(agent.socket))
            greedy.sendall(msgpack.packb([0, 0, "hello", [{"protocol": 1, "client": "greedy"}]]))
            greedy.sendall(b"".join(map(msgpack.packb, asked)))
        for _ in range(50):  # as long as all answers would take, several times over
            await client.call("status")
            await asyncio.sleep(0.02)
        assert _resident_bytes(agent.process.pid) - before < _MOST_BYTES
