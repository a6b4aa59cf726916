"""Messages between agent and launcher: one MessagePack map per SOCK_SEQPACKET message.

Requests carry ``id`` and are answered by a message with the same id; ``exited`` is sent unasked, again on each new
connection, until it is acknowledged. Plain data and few imports: the launcher must stay small, because every start
forks it. Named tuples are packed as they are, without a copy of an environment's hundreds of strings.
"""

from __future__ import annotations

import mmap
import socket
from collections.abc import Sequence
from typing import NamedTuple

#: A start with a large environment must fit (the kernel's limit for argv and environment is 2 MiB on most hosts).
MAX_MESSAGE_BYTES = 3 * 1024 * 1024


class Start(NamedTuple):
    """A command to start; ``user`` is a user name of the host.

    ``oom_score_adj`` (0 to 1000) makes the kernel's OOM killer prefer it; it is never less than the launcher's own,
    where that is positive.
    """

    container: str
    user: str
    argv: Sequence[str]
    env: dict[str, str]
    cwd: str
    oom_score_adj: int = 0


class Adopt(NamedTuple):
    """A process to take over; it must belong to ``uid`` alone. Root may name any process.

    With ``tree``, its descendants are included if they belong to the same user and are in no container yet.
    """

    container: str
    pid: int
    user: str
    uid: int
    tree: bool


class Running(NamedTuple):
    """A container whose first process runs. ``started_at`` is Unix time, for an adopted one of its adoption."""

    container: str
    pid: int
    user: str
    started_at: float


class Exited(NamedTuple):
    """A container whose first process ended. ``exit_status`` is 128 + n for signal n; ``ended_at`` is Unix time.

    CPU time and memory are those of the process and the children that it waited for (wait4); the cgroup's counters are
    more complete. For an adopted process they are 0, and ``exit_status`` is None if the kernel reports it to the parent
    only.
    """

    container: str
    exit_status: int | None
    signal: int | None
    cpu_seconds: float
    max_rss_bytes: int
    ended_at: float


def room() -> mmap.mmap:
    """Return room for any message, to be kept: asked for at each message it would be mapped and unmapped each time.

    It takes no more memory than the largest message so far, and a fork copies no more of it.
    """
    return mmap.mmap(-1, MAX_MESSAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def widen(connection: socket.socket) -> None:
    """Allow messages of MAX_MESSAGE_BYTES; without CAP_NET_ADMIN, up to net.core.wmem_max."""
    force = 32  # SO_SNDBUFFORCE, asm-generic/socket.h
    try:
        connection.setsockopt(socket.SOL_SOCKET, force, 2 * MAX_MESSAGE_BYTES)
    except PermissionError:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MAX_MESSAGE_BYTES)
