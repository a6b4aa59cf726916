"""A container's first process, as the launcher knows it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent.launcher.adopt import cgroup_of, may_signal
from agent.launcher.messages import Running


@dataclass(slots=True)
class FirstProcess:
    """``confined``: it has a cgroup of its own. ``adopted``: another process is its parent, and ``uid`` the user that
    asked. ``origin``: the cgroup that it was borrowed from. ``report``: the bytes of its report so far.
    """

    running: Running
    pidfd: int
    confined: bool
    adopted: bool = False
    uid: int = 0
    origin: Path | None = None
    report: bytes = b""

    def in_its_cgroup(self) -> bool:
        """Return whether it is in its container's cgroup, and not moved out by another program.

        Raises:
            ProcessLookupError: it has ended.
        """
        return self.confined and self.running.container in cgroup_of(self.running.pid).split("/")

    def is_outside(self) -> bool:
        """Return whether it was moved out of its container's cgroup, and, if it is adopted, its user may kill it.

        It may have become another user's since, by a program such as sudo(8): the pidfd would still kill it.

        Raises:
            ProcessLookupError: it has ended.
        """
        return not self.in_its_cgroup() and may_signal(self.uid, self.running.pid)
