"""Connect to a Unix socket whose queue is full, because many clients connect at once or the other side is busy.

The kernel then returns EAGAIN. asyncio mistakes that for a pending connection, as with TCP, and goes on with an
unconnected socket, whose other end seems to run as uid 4294967295.
"""

from __future__ import annotations

import asyncio
import socket

#: The limit of the wait; a working daemon empties its queue within milliseconds.
_PATIENCE_S = 10.0
_PAUSE_S = 0.01


async def connect_queued(connection: socket.socket, path: str) -> None:
    """Connect a non-blocking socket; wait while the other side's queue is full.

    Raises:
        OSError: no process listens there, we may not connect, or the queue stays full.
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
