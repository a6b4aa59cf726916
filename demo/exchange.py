"""The shuffle: a worker keeps its output partitions in memory and serves them over TCP on loopback to the workers that
pull.

A request is a token of 16 bytes (other users of the host can connect too) and the number of the partition; the answer
is the number of blobs, then for each the map task that made it, its length and its bytes. Integers are big-endian.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable

_REQUEST = struct.Struct("!16sI")
_COUNT = struct.Struct("!I")
_ENTRY = struct.Struct("!IQ")
#: Longer than any partition takes, shorter than the patience of a person who watches a demo.
TIMEOUT_S = 120

Blob = tuple[int, bytes]


def listen() -> socket.socket:
    """A listener on a free port of loopback."""
    return socket.create_server(("127.0.0.1", 0), backlog=64)


def serve_forever(listener: socket.socket, token: bytes, take: Callable[[int], list[Blob]]) -> None:
    """Answer pulls one after the other; ``take(partition)`` gives the blobs away."""
    while True:
        connection, _ = listener.accept()
        with connection:
            _bound(connection)
            try:
                given, partition = _REQUEST.unpack(_receive(connection, _REQUEST.size))
                if given == token:
                    _answer(connection, take(partition))
            except OSError:
                continue  # the puller is gone; its own job notices


def _answer(connection: socket.socket, blobs: list[Blob]) -> None:
    connection.sendall(_COUNT.pack(len(blobs)))
    for task, blob in blobs:
        connection.sendall(_ENTRY.pack(task, len(blob)))
        connection.sendall(blob)


def pull(ports: list[int], token: bytes, partition: int) -> list[bytes]:
    """One partition from all producing workers at once; blobs in the order of the map tasks that made them.

    Raises:
        OSError: a producing worker could not be reached or went away.
    """
    received: list[Blob] = []
    failed: list[OSError] = []

    def one(port: int) -> None:
        try:
            received.extend(_pull_from(port, token, partition))
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=one, args=(port,)) for port in ports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return [blob for _, blob in sorted(received)]


def _pull_from(port: int, token: bytes, partition: int) -> list[Blob]:
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        _bound(connection)
        connection.sendall(_REQUEST.pack(token, partition))
        (count,) = _COUNT.unpack(_receive(connection, _COUNT.size))
        blobs = []
        for _ in range(count):
            task, length = _ENTRY.unpack(_receive(connection, _ENTRY.size))
            blobs.append((task, _receive(connection, length)))
        return blobs


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        # MSG_WAITALL: one call, so that a busy interpreter is waited for once and not once per segment.
        part = connection.recv(size, socket.MSG_WAITALL)
        if not part:
            raise ConnectionResetError("the other side closed in the middle of a partition")
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _bound(connection: socket.socket) -> None:
    """Time limits in the kernel: Python's own make a socket non-blocking, and every call then moves little."""
    connection.settimeout(None)
    limit = struct.pack("ll", TIMEOUT_S, 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
