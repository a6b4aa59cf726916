"""Processes of a session, for containers without a cgroup."""

from __future__ import annotations

import contextlib
import os
import signal

from agent.launcher.rounds import each_once

#: Processes that are left would run on beside all containers, so a session is killed longer than others are looked at.
_LONGEST_S = 2.0


def kill_session(leader: int) -> None:
    """Send SIGKILL to every process of the session, and to its leader, even before it has created the session.

    The leader must not have been reaped: until then, the session's number is not reused.

    Raises:
        OSError: the processes cannot be listed; the leader is killed nevertheless.
    """
    _kill(leader)
    each_once(lambda _: _members(leader), _kill, (leader,), longest_s=_LONGEST_S)


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
