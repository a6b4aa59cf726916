"""Where there is no cgroup: the processes of a session, as far as they stayed in it."""

from __future__ import annotations

import os
import signal

#: Between a look and the kills a process may fork; each round finds what the one before it missed.
_ROUNDS = 100


def kill_session(leader: int) -> None:
    """SIGKILL to every process of the session, and to its leader, which may not have begun the session yet.

    The leader must not have been reaped: until then the session's number can be nobody else's.
    """
    killed: set[int] = set()
    for _ in range(_ROUNDS):
        fresh = ({leader} | _members(leader)) - killed
        if not fresh:
            return
        for pid in fresh:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        killed |= fresh


def _members(leader: int) -> set[int]:
    found = set()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                try:
                    if os.getsid(int(entry.name)) == leader:
                        found.add(int(entry.name))
                except OSError:
                    continue  # it ended
    return found
