"""Connecting to a Unix socket whose queue is full, because many connect at once or the other side is busy.

The kernel then answers EAGAIN. asyncio takes that for a connection on its way, as of TCP, and goes on with a socket
that is not connected, whose other end seems to run as uid 4294967295.
"""

from __future__ import annotations

import asyncio
import socket

#: A daemon that is well takes its queue within milliseconds.
_PATIENCE_S = 10.0
_PAUSE_S = 0.01


async def connect_queued(connection: socket.socket, path: str) -> None:
    """Connect a non-blocking socket; wait while the other side's queue is full.

    Raises:
        OSError: nobody listens there, we may not, or the queue stays full.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE_S
    while True:
        try:
            connection.connect(path)
        except BlockingIOError:
            if loop.time() >= deadline:
                raise BlockingIOError(f"too many connect to {path} at once; try later") from None
        else:
            return
        await asyncio.sleep(_PAUSE_S)
