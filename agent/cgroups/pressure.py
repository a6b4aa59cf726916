"""To be told when work stalls or something happens in a cgroup, through a descriptor that any event loop can watch.

The kernel says both by POLLPRI, which asyncio cannot watch. An epoll descriptor that watches for POLLPRI is itself
*readable* then.
"""

from __future__ import annotations

import errno
import os
import select
from pathlib import Path
from types import TracebackType
from typing import Self

from agent.cgroups.files import FlatKeyed
from agent.cgroups.reason import Reason

#: Without CAP_SYS_RESOURCE only windows of whole multiples of this are taken (kernel/sched/psi.c, 6.4).
_UNPRIVILEGED_WINDOW_US = 2_000_000
_LEAST_WINDOW_US = 500_000
#: What a file that is watched can hold.
_READ_BYTES = 4096


class _Watch:
    """A file whose POLLPRI makes :meth:`fileno` readable."""

    def __init__(self, path: Path, flags: int) -> None:
        self.path = path
        self._file = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
        self._epoll = select.epoll()

    def _watch(self) -> None:
        """Not before a trigger is armed: until then there is nothing that the kernel could queue us on."""
        self._epoll.register(self._file, select.EPOLLPRI)

    def fileno(self) -> int:
        """To be watched for reading."""
        return self._epoll.fileno()

    def close(self) -> None:
        """Watch no more; take it out of the event loop before."""
        self._epoll.close()
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class PressureTrigger(_Watch):
    """Fires when tasks stalled for ``stall_us`` within ``window_us``, at most once in each window (PSI, 4.20; 5.2).

    Without CAP_SYS_RESOURCE the kernel takes windows of 2 s only: then ``stall_us`` is the same share of that, and
    ``compromise`` says so (None: it is as asked).

    Args:
        path: a pressure file: a cgroup's ``memory.pressure``, or one in ``/proc/pressure``.
        window_us: 500,000 to 10,000,000.

    Raises:
        OSError: there is no such file, it may not be written to, or the kernel does not take the numbers.
    """

    def __init__(self, path: Path, stall_us: int, window_us: int) -> None:
        super().__init__(path, os.O_RDWR)
        self.stall_us, self.window_us = stall_us, window_us
        self.compromise: Reason | None = None
        try:
            self._arm()
            self._watch()
        except BaseException:
            self.close()
            raise

    def _arm(self) -> None:
        try:
            self._write()
        except OSError as error:
            if error.errno != errno.EINVAL or not _LEAST_WINDOW_US <= self.window_us < _UNPRIVILEGED_WINDOW_US:
                raise
            self.compromise = Reason(
                f"pressure is looked at every 2 s instead of every {self.window_us / 1e6:g} s",
                "give the agent CAP_SYS_RESOURCE (AmbientCapabilities= in its unit)",
            )
            self.stall_us = self.stall_us * _UNPRIVILEGED_WINDOW_US // self.window_us
            self.window_us = _UNPRIVILEGED_WINDOW_US
            self._write()

    def _write(self) -> None:
        os.write(self._file, f"some {self.stall_us} {self.window_us}\0".encode())

    def fired(self) -> bool | None:
        """To be called each time :meth:`fileno` was readable: True; None: the cgroup is gone, so close it.

        Whoever watches :meth:`fileno` has thereby taken the event from the kernel already, so nothing is left to be
        asked: this is only for afterwards.
        """
        seen = self._epoll.poll(0)
        return None if any(mask & select.EPOLLERR for _, mask in seen) else True


class EventsWatch(_Watch):
    """Says when ``memory.events``, ``cgroup.events`` or ``pids.events`` changed.

    Raises:
        OSError: there is no such file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, os.O_RDONLY)
        self._watch()
        self.changed()

    def changed(self) -> dict[str, int] | None:
        """What the file says now, and it is armed again; None: the cgroup is gone."""
        try:
            text = os.pread(self._file, _READ_BYTES, 0)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return None
            raise
        return FlatKeyed.parse(text.decode())
