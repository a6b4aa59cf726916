"""Who is at the other end of a Unix socket, as the kernel vouches for it, and whether he is an operator."""

from __future__ import annotations

import contextlib
import ctypes
import grp
import os
import pwd
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_SO_PEERGROUPS = 59  # asm-generic/socket.h, Linux 4.13
_MOST_GROUPS = 65536  # NGROUPS_MAX
_ID = struct.calcsize("I")


class Caller(NamedTuple):
    """``user`` is a name of the host's, or ``uid:N`` of one that has none: that one cannot have anything started."""

    uid: int
    user: str
    operator: bool
    pid: int


def caller(connection: socket.socket, operators: str = "") -> Caller:
    """Root, who we are ourselves, and the members of the group ``operators`` may act on what is others'.

    Membership is what the process had when it connected, as the kernel keeps it: nothing is looked up, and who joins
    the group logs in anew, as for everything else.
    """
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 3 * _ID)
    pid, uid, gid = struct.unpack("iII", credentials)
    operator = uid in (0, os.geteuid()) or (bool(operators) and _gid(operators) in {gid, *_groups(connection)})
    return Caller(uid, _name(uid), operator, pid)


def container_of(pid: int, live: Mapping[str, int], proc: Path = Path("/proc")) -> str:
    """The container that a process runs in, "" for none: by its cgroup, or else by its session.

    ``live`` has the pid of the first process of each: the launcher starts each container in a session of its own.
    """
    with contextlib.suppress(OSError):
        for line in (proc / str(pid) / "cgroup").read_text().splitlines():
            if line.startswith("0::"):  # cgroup v2
                for part in line[3:].split("/"):
                    if part in live:
                        return part
    with contextlib.suppress(OSError):
        leader = os.getsid(pid)
        return next((container for container, first in live.items() if first == leader), "")
    return ""


def known_group(name: str) -> bool:
    """Whether the host has it."""
    return _gid(name) is not None


def _name(uid: int) -> str:
    """Work is started by name, so the name must lead back to the same uid: two directories may share a name."""
    try:
        name = pwd.getpwuid(uid).pw_name
        if pwd.getpwnam(name).pw_uid == uid:
            return name
    except KeyError:
        pass
    return f"uid:{uid}"


def _gid(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def _groups(connection: socket.socket) -> tuple[int, ...]:
    try:
        found = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 64 * _ID)
    except OSError:  # ERANGE: more than that, and Python's own call takes no more than 256
        found = _many_groups(connection)
    return struct.unpack(f"{len(found) // _ID}I", found)


def _many_groups(connection: socket.socket) -> bytes:
    space = ctypes.create_string_buffer(_MOST_GROUPS * _ID)
    size = ctypes.c_uint(len(space))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.getsockopt(connection.fileno(), socket.SOL_SOCKET, _SO_PEERGROUPS, space, ctypes.byref(size)) != 0:
        raise OSError(ctypes.get_errno(), "SO_PEERGROUPS")
    return space.raw[: size.value]
