"""File descriptors that run out: the launcher starts nothing new then, and goes on watching its containers."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import time
from collections.abc import Callable

#: Errors that pass when descriptors are closed: of this process, or of any other one on the host.
_NONE_FREE = {errno.EMFILE, errno.ENFILE}
#: Delay before a handler without a free descriptor is called again.
_AGAIN_S = 0.2
#: Twice as many as a handler opens at once: a listing of processes or cgroups, a process, a file.
_RESERVED = 6

Watched = socket.socket | int
Handler = Callable[[int], object]


class Reserve:
    """A context in which a few more descriptors are free, for those that are closed before its end.

    Starts and connections use up the others, and a container's end must be handled nevertheless.
    """

    def __init__(self) -> None:
        self._kept: list[int] = []
        self._size = _RESERVED
        self._fill()

    def give_up(self) -> None:
        """Leave them free from now on."""
        self._size = 0
        self.__enter__()

    def __enter__(self) -> None:
        while self._kept:
            os.close(self._kept.pop())

    def __exit__(self, *_: object) -> None:
        self._fill()

    def _fill(self) -> None:
        with contextlib.suppress(OSError):  # filled again after the next use
            while len(self._kept) < self._size:
                self._kept.append(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))


class Selector:
    """Handlers of sockets and descriptors. One that raises EMFILE or ENFILE is called again after a while; it must not
    have changed anything before.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._later: dict[Watched, tuple[int, Handler]] = {}
        self._again_at_s = 0.0

    def watch(self, what: Watched, then: Handler) -> None:
        """Call ``then`` with the events whenever there is something to read."""
        self._selector.register(what, selectors.EVENT_READ, then)

    def want(self, what: Watched, *, to_write: bool) -> None:
        """Call the handler also whenever there is room to write, or no longer."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if to_write else 0)
        key = self._selector.get_key(what)
        if key.events != events:
            self._selector.modify(what, events, key.data)

    def unregister(self, what: Watched) -> None:
        """Call the handler no more."""
        if self._later.pop(what, None) is None:
            self._selector.unregister(what)

    def turn(self, patience_s: float | None) -> bool:
        """Call the handlers of all that is ready; return False if nothing was for the whole time (None: no limit)."""
        if self._later:
            patience_s = max(0.0, self._again_at_s - time.monotonic())
        ready = self._selector.select(patience_s)
        for key, events in ready:
            if key.fd in self._selector.get_map():  # not closed by an earlier event
                self._call(key, events)
        if self._later and time.monotonic() >= self._again_at_s:
            for what, (events, then) in self._later.items():
                self._selector.register(what, events, then)
            self._later.clear()
            return True
        return bool(ready or self._later)

    def _call(self, key: selectors.SelectorKey, events: int) -> None:
        try:
            key.data(events)
        except OSError as error:
            if error.errno not in _NONE_FREE:
                raise
            what: Watched = key.fileobj  # type: ignore[assignment]
            self._selector.unregister(what)  # it stays ready and would be called again and again
            self._later[what] = (key.events, key.data)
            self._again_at_s = time.monotonic() + _AGAIN_S
