"""Wait for the kernel's notification of a change of ``memory.events``, ``cgroup.events`` or ``pids.events``."""

from __future__ import annotations

import errno
import os
import select
from pathlib import Path
from typing import Self


class EventsWatch:
    """A file of events; :meth:`fileno` is readable when it has changed (POLLPRI, through epoll)."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(self._file, select.EPOLLPRI)
        self.changed()

    def changed(self) -> dict[str, int] | None:
        """Read the file and arm the watch again; None: the cgroup is gone."""
        try:
            fields = os.pread(self._file, 4096, 0).decode().split()
        except OSError as error:
            if error.errno == errno.ENODEV:
                return None
            raise
        return dict(zip(fields[::2], map(int, fields[1::2]), strict=True))

    def fileno(self) -> int:
        """Return the descriptor to watch for reading."""
        return self._epoll.fileno()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._epoll.close()
        os.close(self._file)
