"""Notification of stalls in a cgroup, through a descriptor that any event loop can watch.

The kernel signals them by POLLPRI, which asyncio cannot watch. An epoll descriptor that watches for POLLPRI becomes
*readable* at that moment.
"""

from __future__ import annotations

import errno
import os
import select
from pathlib import Path

from agent.cgroups.reason import Reason

#: Without CAP_SYS_RESOURCE the kernel only takes windows in multiples of this (kernel/sched/psi.c, 6.4).
_UNPRIVILEGED_WINDOW_US = 2_000_000
_LEAST_WINDOW_US = 500_000
#: How memory is watched: 50 ms of stall within half a second fires 60 to 76 ms after memory.high was first breached
#: (docs/kernel.md).
MEMORY_STALL_US, MEMORY_WINDOW_US = 50_000, 500_000


class PressureTrigger:
    """Fires when tasks stalled for ``stall_us`` within ``window_us``, at most once per window (PSI, 4.20; 5.2).

    Without CAP_SYS_RESOURCE the kernel takes windows of 2 s only: then ``stall_us`` is scaled to that window, and
    ``compromise`` reports it (None: the trigger is as asked).

    Args:
        path: a pressure file: a cgroup's ``memory.pressure``, or one in ``/proc/pressure``.
        window_us: 500,000 to 10,000,000.

    Raises:
        OSError: the file does not exist, may not be written to, or the kernel does not take the numbers.
    """

    def __init__(self, path: Path, stall_us: int, window_us: int) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._epoll = select.epoll()
        except OSError:
            os.close(self._file)
            raise
        self.stall_us, self.window_us = stall_us, window_us
        self.compromise: Reason | None = None
        try:
            self._arm()  # first: until then the kernel has no queue for the watcher
            self._epoll.register(self._file, select.EPOLLPRI)
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """Return the descriptor to watch for reading."""
        return self._epoll.fileno()

    def close(self) -> None:
        """Close both descriptors; remove them from the event loop first."""
        self._epoll.close()
        os.close(self._file)

    def _arm(self) -> None:
        try:
            self._write()
        except OSError as error:
            if error.errno != errno.EINVAL or not _LEAST_WINDOW_US <= self.window_us < _UNPRIVILEGED_WINDOW_US:
                raise
            self.compromise = Reason(
                f"pressure is checked every 2 s instead of every {self.window_us / 1e6:g} s",
                "give the agent CAP_SYS_RESOURCE (AmbientCapabilities= in its unit)",
            )
            self.stall_us = self.stall_us * _UNPRIVILEGED_WINDOW_US // self.window_us
            self.window_us = _UNPRIVILEGED_WINDOW_US
            self._write()

    def _write(self) -> None:
        os.write(self._file, f"some {self.stall_us} {self.window_us}\0".encode())

    def fired(self) -> bool | None:
        """Return True, or None if the cgroup is gone and the trigger must be closed. Call it when :meth:`fileno` is
        readable.

        Watching :meth:`fileno` has already taken the event from the kernel, so this cannot be used to poll.
        """
        seen = self._epoll.poll(0)
        return None if any(mask & select.EPOLLERR for _, mask in seen) else True
