"""Processes of a session, for containers without a cgroup."""

from __future__ import annotations

import contextlib
import os
import signal

#: A process may fork between the listing and the kills; each round finds those that the previous one missed.
_ROUNDS = 100


def kill_session(leader: int) -> None:
    """Send SIGKILL to every process of the session, and to its leader, even before it has created the session.

    The leader must not have been reaped: until then, the session's number is not reused.

    Raises:
        OSError: the processes cannot be listed; the leader is killed nevertheless.
    """
    _kill(leader)
    killed = {leader}
    for _ in range(_ROUNDS):
        fresh = _members(leader) - killed
        if not fresh:
            return
        for pid in fresh:
            _kill(pid)
        killed |= fresh


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


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
