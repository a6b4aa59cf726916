"""Backfill (EASY: Lifka, "The ANL/IBM SP Scheduling System", 1995): who may pass the first job that waits for memory.

A job passes only if the first one then starts no later than without it. EASY compares with one forecast of when the
first can start; a job that ends sooner than its forecast breaks that. Here every order of ends is allowed for that the
known lengths leave open: a job of unknown length may end at any moment, and one that passes may stay for ever.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

#: So many different sums of memory are looked at; beyond them nobody passes.
_MOST_SUMS = 4096


class Running(NamedTuple):
    """An admitted job: what it has reserved, and when it ends at the earliest, seconds from now."""

    memory_bytes: int
    ends_after_s: float = 0.0


class Backfill:
    """What the jobs behind the first may still take.

    The first starts when the jobs that have ended have given back what it lacks. What these give back beyond that is
    nobody's: the least of it, over all the sets of jobs that may end first, may be lent.
    """

    def __init__(self, lacks_bytes: int, running: Iterable[Running]) -> None:
        """``lacks_bytes`` is what the first wants beyond what is free, more than 0."""
        self._spare = _spare(lacks_bytes, sorted(running, key=lambda job: job.ends_after_s))

    def take(self, memory_bytes: int, ends_within_s: float = math.inf) -> bool:
        """Let a job pass, if it may: it holds so much until it ends, which it does within that time (inf: unknown)."""
        lent_to = [time_s for time_s in self._spare if time_s < ends_within_s]
        if any(memory_bytes > self._spare[time_s] for time_s in lent_to):
            return False
        for time_s in lent_to:
            self._spare[time_s] -= memory_bytes
        return True


def _spare(lacks_bytes: int, running: list[Running]) -> dict[float, float]:
    """Return, for each time in seconds from which on more jobs may have ended, the least that is left over in bytes.

    That is the smallest sum over a set of those jobs that reaches what is lacking, less what is lacking.
    """
    spare: dict[float, float] = {}
    below, least = {0}, math.inf
    for job in running:
        if len(below) > _MOST_SUMS:
            least = lacks_bytes  # nobody knows
        else:
            sums = {known + job.memory_bytes for known in below}
            least = min(least, min((each for each in sums if each >= lacks_bytes), default=math.inf))
            below |= {each for each in sums if each < lacks_bytes}
        spare[job.ends_after_s] = least - lacks_bytes
    return spare
