"""The peer of a Unix socket, by its credentials from the kernel, and whether it is an operator."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import grp
import os
import pwd
import socket
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from agent.cgroups.filesystem import KERNEL

_SO_PEERGROUPS = 59  # asm-generic/socket.h, Linux 4.13
_MOST_GROUPS = 65536  # NGROUPS_MAX
_ID = struct.calcsize("I")
PROC = Path("/proc")
_START_FIELD = 22 - 3  # of /proc/PID/stat (proc(5)), counted after the command's name


class PeerCredentials(NamedTuple):
    """The peer's credentials. ``user`` is a user name, or ``uid:N`` for a uid without one, which cannot start work."""

    uid: int
    user: str
    operator: bool
    pid: int


def credentials_of(connection: socket.socket, operators: str = "") -> PeerCredentials:
    """Return the peer. Root, the agent's own user and members of the group ``operators`` are operators.

    Group membership is that of the process when it connected, from the kernel: no lookup is needed, and users who join
    the group must log in again, as for everything else.
    """
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 3 * _ID)
    pid, uid, gid = struct.unpack("iII", credentials)
    operator = uid in (0, os.geteuid()) or (bool(operators) and _gid(operators) in {gid, *_groups(connection)})
    return PeerCredentials(uid, user_of(uid), operator, pid)


def container_of(
    pid: int, live: Mapping[str, int], adopted: Mapping[str, int] = MappingProxyType({}), proc: Path = PROC
) -> str:
    """Return the container that a process runs in, "" for none: by its cgroup, else by its session and its ancestors.

    ``live`` maps launched containers to their first processes, each in a session of its own. ``adopted`` maps the
    others: descendants of their first processes belong to them.
    """
    with contextlib.suppress(OSError):
        for line in KERNEL.read(os.fsencode(proc / str(pid) / "cgroup")).splitlines():
            if line.startswith("0::"):  # cgroup v2
                for part in line[3:].split("/"):
                    if part in live or part in adopted:
                        return part
    with contextlib.suppress(OSError):
        leader = os.getsid(pid)
        found = next((container for container, first in live.items() if first == leader), "")
        if found:
            return found
    firsts = {first: container for container, first in adopted.items()}
    return next((firsts[one] for one in ancestry(pid, proc) if one in firsts), "") if firsts else ""


def ancestry(pid: int, proc: Path = PROC) -> Iterator[int]:
    """Yield a process, its parent, and so on."""
    while pid > 0:
        yield pid
        try:
            pid = int(_stat(pid, proc)[1])
        except (OSError, ValueError, IndexError):
            return  # it ended meanwhile


def is_still(pid: int, at_s: float) -> bool:
    """Return whether the process that had this pid at this time (CLOCK_BOOTTIME) still lives: none that began later."""
    try:
        ticks = int(_stat(pid, PROC)[_START_FIELD])
    except (OSError, ValueError, IndexError):
        return False
    return ticks <= at_s * os.sysconf("SC_CLK_TCK")


def _stat(pid: int, proc: Path) -> list[str]:
    """Return the fields after the command's name, which may contain any characters."""
    return (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()


def known_group(name: str) -> bool:
    """Return whether the host has the group."""
    return _gid(name) is not None


def user_of(uid: int) -> str:
    """Return a name to start work under, else ``uid:N``. The agent's own user is looked up once: usermod(8) renames no
    user whose processes run.
    """
    try:
        return _own_name(uid) if uid == os.geteuid() else _name(uid)
    except KeyError:
        return f"uid:{uid}"


def _name(uid: int) -> str:
    """Raises KeyError: it has none that maps back: two directories may share a name."""
    name = pwd.getpwuid(uid).pw_name
    if pwd.getpwnam(name).pw_uid != uid:
        raise KeyError(name)
    return name


_own_name = functools.cache(_name)


def _gid(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def _groups(connection: socket.socket) -> tuple[int, ...]:
    try:
        found = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 64 * _ID)
    except OSError:  # ERANGE: more than 64, and Python's getsockopt takes at most 256
        found = _many_groups(connection)
    return struct.unpack(f"{len(found) // _ID}I", found)


def _many_groups(connection: socket.socket) -> bytes:
    space = ctypes.create_string_buffer(_MOST_GROUPS * _ID)
    size = ctypes.c_uint(len(space))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.getsockopt(connection.fileno(), socket.SOL_SOCKET, _SO_PEERGROUPS, space, ctypes.byref(size)) != 0:
        raise OSError(ctypes.get_errno(), "SO_PEERGROUPS")
    return space.raw[: size.value]
