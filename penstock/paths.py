"""Where Penstock's sockets and state are: the system's places for root, the user's own for everybody else."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from penstock.peer_credentials import is_private

#: The socket of the system's agent.
SYSTEM = Path("/run/penstock/agent.sock")


def runtime_dir() -> Path:
    """Return the directory of sockets: ``$PENSTOCK_RUNTIME_DIR``; /run/penstock for root; the user's own for others."""
    if given := os.environ.get("PENSTOCK_RUNTIME_DIR"):
        return Path(given)
    if os.geteuid() == 0:
        return Path("/run/penstock")
    base = os.environ.get("XDG_RUNTIME_DIR")
    # /tmp is world-writable, so make_private() refuses a directory that another user made there.
    return Path(base) / "penstock" if base else Path(f"/tmp/penstock-{os.geteuid()}")  # noqa: S108


def agent_socket() -> Path:
    """Return the agent's framework socket: ``$PENSTOCK_SOCKET``; the user's own agent if it runs; the system's.

    A directory that another user could have made, as /tmp/penstock-UID, is passed over. Clients also check the user
    that the server runs as (:func:`penstock.peer_credentials.check_server`).
    """
    if given := os.environ.get("PENSTOCK_SOCKET"):
        return Path(given)
    own = runtime_dir() / "agent.sock"
    if os.geteuid() == 0 or (is_private(own.parent) and own.exists()):
        return own
    return SYSTEM if SYSTEM.exists() else own


def state_dir() -> Path:
    """Return the directory of persistent state: /var/lib/penstock for root, else ``~/.local/state/penstock``."""
    if given := os.environ.get("PENSTOCK_STATE_DIR"):
        return Path(given)
    if os.geteuid() == 0:
        return Path("/var/lib/penstock")
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local/state") / "penstock"


def service_state_dir() -> Path:
    """The same of a service that its manager gives a directory of its own (``StateDirectory=``)."""
    given = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    return Path(given) if given else state_dir()


def why_not_writable(path: Path) -> str:
    """Return why no file can be written at ``path``, with the remedy; empty if one can, as far as can be seen."""
    if path.is_dir():
        return f"{path} is a directory; name a file"
    if not path.parent.is_dir():
        return f"{path.parent}: no such directory; make it, or name a file elsewhere"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return f"{path.parent}: no permission to write there; name a file elsewhere"
    return ""


def make_private(directory: Path, mode: int = 0o700) -> None:
    """Make a directory that only this user can change.

    Raises:
        PermissionError: another user owns it, or may write to it (a trap laid in a world-writable place).
        NotADirectoryError: it, or a part of its path, is a file.
    """
    try:
        directory.mkdir(mode=mode, parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory)) from None
    link, target = directory.lstat(), directory.stat()
    if target.st_uid != os.geteuid() or link.st_uid not in (0, os.geteuid()):
        raise PermissionError(f"{directory} belongs to another user; name another directory")
    if target.st_mode & 0o022:
        raise PermissionError(f"{directory} may be written to by other users; run `chmod go-w {directory}`")


def make_configured(key: str, directory: Path, mode: int = 0o700) -> None:
    """Make the directory of a configuration key, as :func:`make_private`.

    Raises:
        OSError: it cannot be made; the message begins with the key, and has the remedy.
    """
    try:
        make_private(directory, mode)
    except OSError as error:
        why = f"{directory}: {error.strerror}; name another directory" if error.strerror else str(error)
        raise OSError(f"{key}: {why}") from error
