"""The socket for descriptors: who connects and says nothing cannot take all of the agent's own."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

from agent.stdio import UNCLAIMED_PER_USER, Stdio

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
