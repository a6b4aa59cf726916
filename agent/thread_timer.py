"""A timer that one thread sets and another one waits for, by one system call each (timerfd_create(2), Linux 2.6.25).

With an event of Python's, the waiting thread would wake when the timer is set, only to sleep again: it would compete
for the interpreter with the thread that has set it.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from functools import partial

_CLOEXEC = os.O_CLOEXEC  # TFD_CLOEXEC
_EXPIRATIONS_BYTES = 8
_NANOSECONDS = 1_000_000_000
#: PyDLL keeps the interpreter's lock, as these calls do not wait.
_libc = ctypes.PyDLL(None, use_errno=True)


class ThreadTimer:
    """A timer for one delay. :attr:`start` lets :meth:`wait` return after it, :attr:`expire` at once."""

    def __init__(self, delay_s: float) -> None:
        """Raises OSError: no descriptor is free."""
        descriptor = self._descriptor = int(_libc.timerfd_create(time.CLOCK_MONOTONIC, _CLOEXEC))
        if descriptor < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self.start: Callable[[], object] = partial(_libc.timerfd_settime, descriptor, 0, _once_after(delay_s), None)
        self.expire: Callable[[], object] = partial(_libc.timerfd_settime, descriptor, 0, _once_after(0.0), None)

    def wait(self) -> None:
        """Wait until it expires, or return at once if it has expired since the last call."""
        os.read(self._descriptor, _EXPIRATIONS_BYTES)

    def close(self) -> None:
        """Close it; no thread may wait for it."""
        os.close(self._descriptor)


def _once_after(delay_s: float) -> ctypes.Array[ctypes.c_long]:
    """Return a struct itimerspec."""
    seconds, nanoseconds = divmod(max(1, round(delay_s * _NANOSECONDS)), _NANOSECONDS)  # zero would switch it off
    return (ctypes.c_long * 4)(0, 0, seconds, nanoseconds)
