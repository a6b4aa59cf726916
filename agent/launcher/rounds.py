"""Act on all processes of a group, some of which may fork meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

#: The launcher starts and reaps the containers of all users in one thread: processes that fork for ever hold it up no
#: longer than this.
LONGEST_S = 0.2
#: A list of a host with thousands of processes may take that long; a group at rest is found by two.
_FEWEST = 3


def each_once(
    listed: Callable[[Collection[int]], Iterable[int]],
    act: Callable[[int], object],
    known: Iterable[int] = (),
    *,
    longest_s: float = LONGEST_S,
) -> bool:
    """Act on each process that is listed and not known, until a list has no other; each list finds those that were
    forked after the one before. ``listed`` takes the known processes.

    Returns:
        Whether all were found; False: others came for ``longest_s``, and in each of the first lists.
    """
    seen = set(known)
    until = time.monotonic() + longest_s
    rounds = 0
    while fresh := [pid for pid in listed(seen) if pid not in seen]:
        if rounds >= _FEWEST and time.monotonic() > until:
            return False
        rounds += 1
        seen.update(fresh)
        for pid in fresh:
            act(pid)
    return True
