"""Search for an application's driver among the processes of this host, by the address at which it listens."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

_PROC = Path("/proc")
_LISTENS = "0A"  # TCP_LISTEN, include/net/tcp_states.h
_V4_AS_V6 = b"\0" * 10 + b"\xff\xff"  # a JVM's socket takes IPv4 by IPv6


def find(url: str) -> int:
    """Return the pid of the driver with this URL (``spark://CoarseGrainedScheduler@host:port``).

    0: it runs on another host or as another user, or listens at all addresses (``spark.driver.bindAddress``).
    """
    try:
        parts = urlsplit(url)
        port = (parts.hostname and parts.port) or 0
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM) if port else []
    except (OSError, ValueError):  # no such name, or no URL
        return 0
    addresses = {each for family, *_, address in found for each in _as_listed(family, str(address[0]), port)}
    sockets = {f"socket:[{inode}]" for inode in _listening(addresses)}
    return next(_holding(sockets), 0) if sockets else 0


def _as_listed(family: int, address: str, port: int) -> tuple[str, ...]:
    """Return an address as the kernel lists it, in words of the host's byte order; one of IPv4 also as IPv6."""
    packed = socket.inet_pton(family, address.partition("%")[0])
    every = (packed, _V4_AS_V6 + packed) if family == socket.AF_INET else (packed,)
    words = (struct.unpack(f"={len(each) // 4}I", each) for each in every)
    return tuple(f"{''.join(f'{word:08X}' for word in each)}:{port:04X}" for each in words)


def _listening(addresses: set[str]) -> Iterator[str]:
    """Yield the inodes of the sockets that listen at one of the addresses (proc_pid_net(5), ``tcp``)."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):  # no IPv6
            for line in (_PROC / "net" / name).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[1] in addresses and fields[3] == _LISTENS:
                    yield fields[9]


def _holding(sockets: set[str]) -> Iterator[int]:
    """Yield the processes that hold one of the sockets, among those with descriptors that this user may see."""
    for pid in sorted(int(each.name) for each in _PROC.iterdir() if each.name.isdigit()):
        descriptors = _PROC / str(pid) / "fd"
        with contextlib.suppress(OSError):  # another user's, or it has ended
            if any(_target(descriptors / each) in sockets for each in os.listdir(descriptors)):  # noqa: PTH208
                yield pid


def _target(descriptor: Path) -> str:
    """Return the target of a descriptor; "" if it was closed a moment ago."""
    try:
        return os.readlink(descriptor)  # noqa: PTH115
    except OSError:
        return ""
