"""The floor under every figure of the wire: a bare MessagePack echo over a Unix socket, one message at a time.

``python -m bench._echo SOCKET asyncio|uvloop`` is the server.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any, cast

import msgpack
import uvloop


class EchoServer(asyncio.Protocol):
    """Decodes each message and sends it back."""

    def __init__(self) -> None:
        self._unpacker = msgpack.Unpacker()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self._unpacker.feed(data)
        for message in self._unpacker:
            self._transport.write(msgpack.packb(message))


class EchoClient(EchoServer):
    """Sends a message and waits for it."""

    answer: asyncio.Future[Any]

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self._unpacker.feed(data)
        for message in self._unpacker:
            self.answer.set_result(message)

    async def echo(self, number: int) -> float:
        """Seconds from the call to the answer."""
        began = time.perf_counter()
        self.answer = asyncio.get_running_loop().create_future()
        self._transport.write(msgpack.packb([0, number, "complete", ["bench-1", [{"id": number}]]]))
        await self.answer
        return time.perf_counter() - began


async def echoes(socket: Path, count: int, warm_up: int) -> list[float]:
    """Seconds of each of ``count`` round trips."""
    _, client = await asyncio.get_running_loop().create_unix_connection(EchoClient, str(socket))
    for number in range(warm_up):
        await client.echo(number)
    return [await client.echo(number) for number in range(count)]


async def serve(socket: str) -> None:
    """For ever."""
    server = await asyncio.get_running_loop().create_unix_server(EchoServer, socket)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if sys.argv[2] == "uvloop" else None) as runner:
        runner.run(serve(sys.argv[1]))
