"""Which user is at the other end of a Unix socket, as the kernel recorded it (SO_PEERCRED)."""

from __future__ import annotations

import _socket as socket  # socket itself makes enumerations of all constants: a tenth of `penstock submit`
import os
import sys
from pathlib import Path

#: struct ucred: pid, uid, gid (four bytes each)
_CREDENTIALS_BYTES, _UID = 12, slice(4, 8)


class UntrustedServerError(PermissionError):
    """A process of another user listens at the path. The message is one line with the remedy."""


def peer_uid(connection: socket.socket) -> int:
    """Return the user id of the process that connected, or that called listen()."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS_BYTES)
    return int.from_bytes(credentials[_UID], sys.byteorder)


def is_trusted(uid: int) -> bool:
    """Return whether a process of this user may give orders to this one: root, or the user that it runs as itself."""
    return uid in (0, os.geteuid())


def check_server(connection: socket.socket, path: Path) -> None:
    """Refuse a server that is neither root's nor this user's. Call it before anything is sent.

    Raises:
        UntrustedServerError: the server could read the environment and take the descriptors that a client passes.
    """
    uid = peer_uid(connection)
    if is_trusted(uid):
        return
    raise UntrustedServerError(
        f"not connected to {path}: the process that listens there runs as {_name(uid)}, neither as root nor as you; "
        "remove that file, or name the right socket"
    )


def is_private(directory: Path) -> bool:
    """Return whether only root and this user can put a socket into the directory."""
    trusted = (0, os.geteuid())
    try:
        link, target = directory.lstat(), directory.stat()
    except OSError:
        return False
    return link.st_uid in trusted and target.st_uid in trusted and not target.st_mode & 0o022


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
