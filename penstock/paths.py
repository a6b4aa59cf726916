"""Where Penstock's sockets and state are: the system's places for root, the user's own for everybody else."""

from __future__ import annotations

import os
from pathlib import Path


def runtime_dir() -> Path:
    """The directory of sockets: ``$PENSTOCK_RUNTIME_DIR``; /run/penstock for root; the user's own for others."""
    if given := os.environ.get("PENSTOCK_RUNTIME_DIR"):
        return Path(given)
    if os.geteuid() == 0:
        return Path("/run/penstock")
    base = os.environ.get("XDG_RUNTIME_DIR")
    # A world-writable place, so make_private() refuses a directory that somebody else made there.
    return Path(base) / "penstock" if base else Path(f"/tmp/penstock-{os.geteuid()}")  # noqa: S108


def agent_socket() -> Path:
    """The agent's framework socket: ``$PENSTOCK_SOCKET``; else the user's own agent if it runs; else the system's."""
    if given := os.environ.get("PENSTOCK_SOCKET"):
        return Path(given)
    own = runtime_dir() / "agent.sock"
    return own if own.exists() or os.geteuid() == 0 else _system_socket_or(own)


def _system_socket_or(own: Path) -> Path:
    system = Path("/run/penstock/agent.sock")
    return system if system.exists() else own


def state_dir() -> Path:
    """What survives a restart: /var/lib/penstock for root, ``~/.local/state/penstock`` else."""
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


def make_private(directory: Path, mode: int = 0o700) -> None:
    """Make a directory of our own.

    Raises:
        PermissionError: somebody else owns it (a trap laid in a world-writable place).
    """
    directory.mkdir(mode=mode, parents=True, exist_ok=True)
    if directory.stat().st_uid != os.geteuid():
        raise PermissionError(f"{directory} belongs to another user; remove it or set PENSTOCK_RUNTIME_DIR")
