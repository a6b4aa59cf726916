"""The launcher's listening socket, and messages with descriptors."""

from __future__ import annotations

import array
import errno
import os
import socket
import struct
from pathlib import Path

from agent.launcher.messages import room

DESCRIPTORS = 4  # stdin, stdout, stderr, and cgroup.procs
_room = room()  # of the one thread


def receive_with_descriptors(connection: socket.socket) -> tuple[bytes, list[int], bool]:
    """Receive a message with close-on-exec descriptors: socket.recv_fds() drops its flags (Python 3.11).

    Return also whether all its descriptors came: those for which this process has no number are lost.
    """
    space = socket.CMSG_SPACE(DESCRIPTORS * struct.calcsize("i"))
    size, ancillary, flags, _ = connection.recvmsg_into([_room], space, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, payload in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(payload[: len(payload) - len(payload) % descriptors.itemsize])
    return bytes(memoryview(_room)[:size]), list(descriptors), not flags & socket.MSG_CTRUNC


def listen(path: Path) -> socket.socket:
    """Listen at a path unless a launcher already does.

    Raises:
        OSError: a launcher answers there already; its containers must not be taken from it.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as trial:
        if trial.connect_ex(str(path)) == 0:
            raise OSError(errno.EADDRINUSE, "a launcher answers there already", str(path))
    path.unlink(missing_ok=True)
    old = os.umask(0o177)
    try:
        listening.bind(str(path))
    finally:
        os.umask(old)
    listening.listen(16)
    return listening
