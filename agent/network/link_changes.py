"""The kernel's messages about links, which are looked for with one system call: see rtnetlink(7)."""

from __future__ import annotations

import errno
import socket

_RTMGRP_LINK = 1  # linux/rtnetlink.h


class LinkChanges:
    """The kernel's messages about the links of this thread's network namespace, from now on.

    They are queued before the call that changes a link returns. Nothing wakes for them: :meth:`seen` reads them.
    """

    def __init__(self) -> None:
        """Raises OSError: no descriptor is free."""
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        self._socket = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
        self._socket.bind((0, _RTMGRP_LINK))

    def seen(self) -> bool:
        """Return whether there was any since the last call."""
        seen = False
        while True:
            try:
                self._socket.recv(1)  # one message; the rest of it is dropped
            except BlockingIOError:
                return seen
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # more than the socket's buffer holds: those are dropped
                    raise
            seen = True

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
