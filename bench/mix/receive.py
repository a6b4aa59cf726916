"""``receive.py ADDRESS PORT``: the other side of :mod:`bench.mix.send`.

It counts the received bytes and reports them at the end.
"""

from __future__ import annotations

import asyncio
import sys

_CHUNK_BYTES = 1 << 20


async def serve(address: str, port: int) -> None:
    """Answer each connection with the number of its bytes; print the port once it listens. Runs until it is killed."""
    server = await asyncio.start_server(_count, address, port, limit=_CHUNK_BYTES)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


async def _count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A sender that goes away is no matter of the others'."""
    arrived = 0
    try:
        while chunk := await reader.read(_CHUNK_BYTES):
            arrived += len(chunk)
        writer.write(str(arrived).encode("ascii"))
        await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
