"""Backfill (EASY: Lifka, "The ANL/IBM SP Scheduling System", 1995): jobs that pass the first job waiting for memory.

A job passes only if the first job then starts no later than without it. EASY compares with a single forecast of the
first job's start, which fails when a job ends sooner than forecast. Here every order of ends is considered that the
known lengths allow: a job of unknown length may end at any moment, and a passing job of unknown length may never end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

#: Largest number of different memory sums to examine; with more, no job passes.
_MOST_SUMS = 4096


class Running(NamedTuple):
    """An admitted job: its reserved memory, and its earliest end in seconds from now."""

    memory_bytes: int
    ends_after_s: float = 0.0


class Backfill:
    """The memory that jobs behind the first may still take.

    The first job starts when ended jobs have released the memory it lacks. Memory they release beyond that is spare.
    The smallest spare amount, over all sets of jobs that may end first, can be lent.
    """

    def __init__(self, lacks_bytes: int, running: Iterable[Running]) -> None:
        """``lacks_bytes``: the memory the first job wants beyond the free memory; more than 0."""
        self._spare = _spare(lacks_bytes, sorted(running, key=lambda job: job.ends_after_s))

    def take(self, memory_bytes: int, ends_within_s: float = math.inf) -> bool:
        """Let a job of ``memory_bytes`` pass if allowed; it ends within ``ends_within_s`` seconds (inf: unknown)."""
        lent_to = [time_s for time_s in self._spare if time_s < ends_within_s]
        if any(memory_bytes > self._spare[time_s] for time_s in lent_to):
            return False
        for time_s in lent_to:
            self._spare[time_s] -= memory_bytes
        return True


def _spare(lacks_bytes: int, running: list[Running]) -> dict[float, float]:
    """Return, for each time in seconds at which another job may have ended, the least spare memory in bytes.

    That is the smallest sum over a set of those jobs that reaches ``lacks_bytes``, minus ``lacks_bytes``.
    """
    spare: dict[float, float] = {}
    below, least = {0}, math.inf
    for job in running:
        if len(below) > _MOST_SUMS:
            least = lacks_bytes  # unknown, so lend nothing
        else:
            sums = {known + job.memory_bytes for known in below}
            least = min(least, min((each for each in sums if each >= lacks_bytes), default=math.inf))
            below |= {each for each in sums if each < lacks_bytes}
        spare[job.ends_after_s] = least - lacks_bytes
    return spare
