"""The address of the master for agents: a Unix socket on one host, or a TCP port between hosts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.config.settings import SettingsError, host_port

#: Bytes of ``sun_path`` (unix(7)), one of which ends the string.
_PATH_BYTES = 107


@dataclass(frozen=True)
class UnixEndpoint:
    """A socket in the file system. The kernel tells each side which user the other runs as."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class TcpEndpoint:
    """A TCP port. Both sides show certificates."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Endpoint = UnixEndpoint | TcpEndpoint


def endpoint(text: str, key: str) -> Endpoint:
    """Read ``/run/penstock/master.sock``, ``head.example.org:7420`` or ``[::1]:7420``.

    Raises:
        SettingsError: the text has none of these forms, or the path is too long for a socket.
    """
    if text.startswith("/"):
        if len(text.encode()) > _PATH_BYTES:
            raise SettingsError(f"{key}: {text!r} is longer than {_PATH_BYTES} bytes; choose a shorter path")
        return UnixEndpoint(Path(text))
    if ":" not in text:
        raise SettingsError(
            f"{key}: {text!r} is neither ADDRESS:PORT nor the path of a Unix socket; "
            "write for example head.example.org:7420 or /run/penstock/master.sock"
        )
    return TcpEndpoint(*host_port(text, key))
