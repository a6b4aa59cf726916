"""A process in a fake cgroup, and a file of it that stays open."""

from __future__ import annotations

import select
import signal
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Process:
    """A real process. ``pidfd`` is readable once it has ended, even if its pid is reused."""

    pid: int
    pidfd: int

    @property
    def lives(self) -> bool:
        """Return whether the process runs; a zombie does not."""
        return not select.select([self.pidfd], [], [], 0)[0]

    def signal(self, signum: int) -> None:
        """Send a signal, unless the process has ended."""
        try:
            signal.pidfd_send_signal(self.pidfd, signum)
        except ProcessLookupError:
            return


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A fake of agent.cgroups.filesystem.OpenFile."""

    read: Callable[[], str]
    close: Callable[[], None]
