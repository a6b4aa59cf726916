"""The expected processing time (EPT, Ursa §4.2.2) by the lengths of the tasks that were placed.

Ursa sets EPT to the scheduling latency: the interval between two rounds, and what reports, decisions and frameworks
take. It should also cover a task's own length, since APT counts all work of a task: with less, the CPU work that a task
will do later bars its node while the node's disk idles. In the simulator, three jobs of 12 tasks of 0.2 s disk and
0.4 s CPU on a node of two cores took 15.5 s with an EPT of 0.12 s, 11.9 s with 0.3 s, 7.7 s with 1 s; 7.6 s is the
least.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

#: Bounds of the derived EPT in seconds: the scheduling latency with its reports and starts, and what was tried.
LEAST_S, MOST_S = 1.0, 5.0
#: So many of the latest tasks decide.
_TASKS = 256
#: EPT covers this share of them.
_COVERED = 0.75
#: EPT moves when it would change by more than this fraction: the pending work of many nodes depends on it.
_MOVES_BY = 0.1
#: What is known is written down when EPT moves, and after so many tasks.
_WRITTEN_AFTER = _TASKS // 4


@dataclass(frozen=True, slots=True)
class KnownLengths:
    """EPT, and the lengths of the latest tasks that it follows, the last one last; all in seconds."""

    ept_s: float
    lengths_s: tuple[float, ...]


class TaskLengths:
    """The lengths of the latest tasks of known size, and the EPT that follows them."""

    def __init__(self) -> None:
        self._ept_s = LEAST_S
        self._lengths_s: deque[float] = deque(maxlen=_TASKS)
        self._seen = False
        self._unwritten = 0

    def see(self, length_s: float) -> None:
        """Count a task that was placed, by the seconds that its work takes where nothing else runs."""
        self._lengths_s.append(length_s)
        self._seen = True
        self._unwritten += 1

    def ept_s(self, interval_s: float) -> float:
        """Return the EPT in seconds from now on; ``interval_s``, the time between two rounds, is its least."""
        least_s = max(LEAST_S, interval_s)
        wanted_s = max(self._ept_s, least_s)
        if self._seen:
            self._seen = False
            ordered = sorted(self._lengths_s)
            found_s = ordered[int(_COVERED * (len(ordered) - 1))]
            wanted_s = min(max(found_s, least_s), max(MOST_S, least_s))
        if self._ept_s < least_s or abs(wanted_s - self._ept_s) > _MOVES_BY * self._ept_s:
            self._ept_s = wanted_s
            self._unwritten += _WRITTEN_AFTER if self._lengths_s else 0
        return self._ept_s

    def take_changes(self) -> KnownLengths | None:
        """Return what is to be written down, where there is enough of it since the last time; else None."""
        if self._unwritten < _WRITTEN_AFTER:
            return None
        self._unwritten = 0
        return KnownLengths(self._ept_s, tuple(self._lengths_s))

    def restore(self, known: KnownLengths | None) -> None:
        """Take over what an earlier master wrote down, if it did; lengths that are none are left out."""
        if known is None:
            return
        self._lengths_s.extend(length_s for length_s in known.lengths_s if 0 < length_s < math.inf)
        if LEAST_S <= known.ept_s < math.inf:
            self._ept_s = known.ept_s
