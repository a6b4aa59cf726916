"""Points at which tests make the agent die, to see what its successor finds (test_faults.py).

``PENSTOCK_DIE_AT`` names a point (``freeze done``; ``freeze done:2`` for the second time); the agent that reaches it
dies as by SIGKILL. Unset, a point costs one comparison.
"""

from __future__ import annotations

import enum
import itertools
import os
import signal


class Point(enum.StrEnum):
    """The steps of creating, adopting, resizing, preempting and destroying after which the state differs."""

    START_ASKED = "start asked"
    START_CGROUP_MADE = "start cgroup made"
    START_CGROUP_CONFINED = "start cgroup confined"
    START_NETWORK_CONFINED = "start network confined"
    START_LAUNCHED = "start launched"
    START_TOLD = "start told"
    CONFINE_ASKED = "confine asked"
    CONFINE_CGROUP_DONE = "confine cgroup done"
    CONFINE_MEMORY_SHRUNK = "confine memory shrunk"
    CONFINE_NETWORK_DONE = "confine network done"
    FREEZE_ASKED = "freeze asked"
    FREEZE_DONE = "freeze done"
    THAW_ASKED = "thaw asked"
    THAW_DONE = "thaw done"
    RECLAIM_ASKED = "reclaim asked"
    RECLAIM_DONE = "reclaim done"
    WARN_DONE = "warn done"
    KILL_ASKED = "kill asked"
    KILL_DONE = "kill done"
    EXIT_SEEN = "exit seen"
    EXIT_TOLD = "exit told"
    REMOVE_ASKED = "remove asked"
    REMOVE_CGROUP_DONE = "remove cgroup done"
    REMOVE_NETWORK_DONE = "remove network done"
    REMOVE_ACKNOWLEDGED = "remove acknowledged"


_die_at, _, _times = os.environ.get("PENSTOCK_DIE_AT", "").partition(":")
_lives = itertools.count(int(_times or 1) - 1, -1)


def reach(point: Point) -> None:
    """Continue, unless the agent is to die at this point."""
    if point == _die_at and next(_lives) == 0:
        os.kill(os.getpid(), signal.SIGKILL)
