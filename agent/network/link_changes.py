"""The links, read anew after one came, went or changed, and rarely otherwise: a look for messages is one system call.

See rtnetlink(7).
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence

from agent.network.links import Link

_RTMGRP_LINK = 1  # linux/rtnetlink.h
#: The links are read at least once in so many calls, in case a message about them was missed.
_MOST_CALLS = 10


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


class LinkList:
    """The links of this thread's network namespace."""

    def __init__(self, read: Callable[[], Sequence[Link]]) -> None:
        """``read`` takes milliseconds. Raises OSError: no descriptor is free."""
        self._read = read
        self._changes = LinkChanges()
        self._links: Sequence[Link] = ()
        self._changed = True
        self._calls = 0  # since the links were read

    def changed(self) -> bool:
        """Return whether the kernel has sent a message about a link since they were read."""
        self._changed |= self._changes.seen()
        return self._changed

    def read(self) -> Sequence[Link]:
        """Return the present links, as they were read if no message has come since."""
        self._calls += 1
        if self.changed() or self._calls >= _MOST_CALLS:
            self._links = self._read()
            self._changed, self._calls = False, 0
        return self._links

    def close(self) -> None:
        """Close the socket."""
        self._changes.close()
