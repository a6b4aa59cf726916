"""The shuffle: a worker keeps its output partitions in memory; a process of its own serves them over TCP on loopback to
the workers that pull. A thread of the worker would wait for the interpreter while the worker computes, and each worker
would wait for the other's computing: a job that is alone on the host would use one processor.

A request is a token of 16 bytes (other users of the host can connect too) and the number of the partition; the answer
is its size in bytes, then for each blob the map task that made it, its length and its bytes. Integers are big-endian.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct

_REQUEST = struct.Struct("!16sI")
_SIZE = struct.Struct("!Q")
_ENTRY = struct.Struct("!IQ")
#: Longer than any partition takes, shorter than the patience of a person who watches a demo.
TIMEOUT_S = 120

Blob = tuple[int, bytes]


class Outputs:
    """A file in memory for each partition: the worker writes it, and its server sends it when all is written."""

    def __init__(self, partitions: int) -> None:
        self._files = [os.memfd_create(f"partition-{number}") for number in range(partitions)]

    def add(self, partition: int, task: int, blob: bytes) -> None:
        """Add what a map task made for a partition."""
        for part in (_ENTRY.pack(task, len(blob)), blob):
            view = memoryview(part)
            while view:
                view = view[os.write(self._files[partition], view) :]

    def send(self, partition: int, connection: socket.socket) -> None:
        """Give a partition away: it is pulled exactly once, and its memory is free then."""
        file = self._files[partition]
        size, sent = os.fstat(file).st_size, 0
        connection.sendall(_SIZE.pack(size))
        while sent < size:
            sent += os.sendfile(connection.fileno(), file, sent, size - sent)
        os.ftruncate(file, 0)


def listen() -> socket.socket:
    """A listener on a free port of loopback."""
    return socket.create_server(("127.0.0.1", 0), backlog=64)


def serve(listener: socket.socket, token: bytes, outputs: Outputs, leash: int) -> None:
    """Answer pulls one after the other, until the other end of the pipe ``leash`` is closed."""
    waited: list[int | socket.socket] = [listener, leash]
    while leash not in select.select(waited, [], [])[0]:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):  # a puller that is gone: its own job notices
            _bound(connection)
            given, partition = _REQUEST.unpack(_receive(connection, _REQUEST.size))
            if given == token:
                outputs.send(partition, connection)


def pull(ports: list[int], token: bytes, partition: int) -> list[bytes]:
    """One partition from all producing workers at once; blobs in the order of the map tasks that made them.

    Raises:
        OSError: a producing worker could not be reached or went away.
    """
    with contextlib.ExitStack() as stack:
        asked = [stack.enter_context(_request(port, token, partition)) for port in ports]
        received = [blob for connection in asked for blob in _blobs(connection)]
    return [blob for _, blob in sorted(received)]


def _request(port: int, token: bytes, partition: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
    _bound(connection)
    connection.sendall(_REQUEST.pack(token, partition))
    return connection


def _blobs(connection: socket.socket) -> list[Blob]:
    (size,) = _SIZE.unpack(_receive(connection, _SIZE.size))
    content, at, blobs = _receive(connection, size), 0, []
    while at < size:
        task, length = _ENTRY.unpack_from(content, at)
        at += _ENTRY.size + length
        blobs.append((task, content[at - length : at]))
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
