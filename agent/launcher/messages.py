"""What agent and launcher say to each other: one MessagePack map per SOCK_SEQPACKET message.

Requests carry ``id`` and are answered by a message with the same id; ``exited`` comes unasked, again after each new
connection, until it is acknowledged. Kept to plain data and few imports: the launcher must stay small, because every
start forks it.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass

#: A start with a large environment must fit (the kernel's own limit for argv and environment is 2 MiB on most hosts).
MAX_MESSAGE_BYTES = 3 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Start:
    """A command to start; ``user`` is a name of the host's."""

    container: str
    user: str
    argv: Sequence[str]
    env: dict[str, str]
    cwd: str


@dataclass(frozen=True, slots=True)
class Running:
    """A container whose first process runs. ``started_at`` is Unix time."""

    container: str
    pid: int
    user: str
    started_at: float


@dataclass(frozen=True, slots=True)
class Exited:
    """A container whose first process ended. ``exit_status`` is 128 + n for signal n; ``ended_at`` is Unix time.

    CPU time and memory are of the process and the children that it waited for (wait4); the cgroup knows better.
    """

    container: str
    exit_status: int
    signal: int | None
    cpu_seconds: float
    max_rss_bytes: int
    ended_at: float


def widen(connection: socket.socket) -> None:
    """Let a message of MAX_MESSAGE_BYTES through; without CAP_NET_ADMIN as much as net.core.wmem_max allows."""
    force = 32  # SO_SNDBUFFORCE, asm-generic/socket.h
    try:
        connection.setsockopt(socket.SOL_SOCKET, force, 2 * MAX_MESSAGE_BYTES)
    except PermissionError:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MAX_MESSAGE_BYTES)
