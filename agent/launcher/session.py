"""Processes of a session, for containers without a cgroup, and processes that have left it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Set as AbstractSet

from agent.launcher.adopt import cgroup_of
from agent.launcher.rounds import each_once

#: Processes that are left would run on beside all containers, so a session is killed longer than others are looked at.
_LONGEST_S = 2.0


def kill_session(leader: int, spared: AbstractSet[str] = frozenset()) -> None:
    """Send SIGKILL to every process of the session, and to its leader, even before it has created the session.

    The leader must not have been reaped: until then, the session's number is not reused. Processes in the cgroups of
    ``spared`` containers, which have adopted them, are left alone.

    Raises:
        OSError: the processes cannot be listed; the leader is killed nevertheless.
    """
    _kill(leader)
    each_once(lambda _: _members(leader, spared), _kill, (leader,), longest_s=_LONGEST_S)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _members(leader: int, spared: AbstractSet[str]) -> set[int]:
    found = set()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                try:
                    pid = int(entry.name)
                    if os.getsid(pid) == leader and not (spared and _is_inside(pid, spared)):
                        found.add(pid)
                except OSError:
                    continue  # it ended
    return found


def _is_inside(pid: int, containers: AbstractSet[str]) -> bool:
    """Return whether a process is in the cgroup of one of the containers. Raises ProcessLookupError: it has ended."""
    return not containers.isdisjoint(cgroup_of(pid).split("/"))
