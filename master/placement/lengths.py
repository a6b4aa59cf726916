"""The expected processing time (EPT, Ursa §4.2.2), derived from the lengths of tasks with a regular place.

Ursa sets EPT to the scheduling latency: the interval between two rounds, plus the time of reports, decisions and
frameworks. It should also cover a task's own length, because APT counts all work of a task: with a smaller EPT, CPU
work that a task will do later bars its node while the node's disk idles. In the simulator, three jobs of 12 tasks of
0.2 s disk and 0.4 s CPU on a node of two cores took 15.5 s with an EPT of 0.12 s, 11.9 s with 0.3 s, 7.7 s with 1 s;
the minimum is 7.6 s.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

#: Bounds of the derived EPT in seconds: the scheduling latency with reports and starts, and the largest value tested.
LEAST_S, MOST_S = 1.0, 5.0
#: Number of latest tasks considered.
_TASKS = 256
#: The fraction of them that EPT covers.
_COVERED = 0.75
#: EPT changes only by more than this fraction, because the pending work of many nodes depends on it.
_MOVES_BY = 0.1
#: The state is stored when EPT changes, and after this many tasks.
_WRITTEN_AFTER = _TASKS // 4


@dataclass(frozen=True, slots=True)
class KnownLengths:
    """EPT, and the lengths of the latest tasks, oldest first; all in seconds."""

    ept_s: float
    lengths_s: tuple[float, ...]


class TaskLengths:
    """The lengths of the latest tasks of known size, and the EPT derived from them."""

    def __init__(self) -> None:
        self._ept_s = LEAST_S
        self._lengths_s: deque[float] = deque(maxlen=_TASKS)
        self._seen = False
        self._unwritten = 0

    def see(self, length_s: float) -> None:
        """Count a task with a regular place, by the seconds that its work takes on an otherwise idle node."""
        self._lengths_s.append(length_s)
        self._seen = True
        self._unwritten += 1

    def ept_s(self, interval_s: float) -> float:
        """Return the present EPT in seconds; it is at least ``interval_s``, the time between two rounds."""
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
        """Return the state to be stored, if it has changed enough since the last time; else None."""
        if self._unwritten < _WRITTEN_AFTER:
            return None
        self._unwritten = 0
        return KnownLengths(self._ept_s, tuple(self._lengths_s))

    def restore(self, known: KnownLengths | None) -> None:
        """Restore the state stored by an earlier master, without invalid lengths."""
        if known is None:
            return
        self._lengths_s.extend(length_s for length_s in known.lengths_s if 0 < length_s < math.inf)
        if LEAST_S <= known.ept_s < math.inf:
            self._ept_s = known.ept_s
