"""A process in a fake cgroup."""

from __future__ import annotations

import select
import signal
from dataclasses import dataclass


@dataclass(slots=True)
class Process:
    """A real one. ``pidfd`` is readable once it has ended, whatever its number means then."""

    pid: int
    pidfd: int

    @property
    def lives(self) -> bool:
        """Not a zombie either."""
        return not select.select([self.pidfd], [], [], 0)[0]

    def signal(self, signum: int) -> None:
        """One that has ended has none to get."""
        try:
            signal.pidfd_send_signal(self.pidfd, signum)
        except ProcessLookupError:
            return
