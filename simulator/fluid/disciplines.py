"""FIFO, PS, LAS and SRPT: each event costs the logarithm of the jobs that are there."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush, heapreplace
from math import inf


class Fifo:
    """One at a time, in the order of arrival."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, float]] = deque()
        self._ends_at = inf

    def arrive(self, job: int, size: float, weight: float, now: float) -> None:
        """At the end of the line."""
        del weight
        self._waiting.append((job, size))
        if len(self._waiting) == 1:
            self._ends_at = now + size

    def next_at(self) -> float:
        """The end of the first in line."""
        return self._ends_at

    def advance(self, now: float) -> int | None:
        """The first in line has ended."""
        job, _ = self._waiting.popleft()
        self._ends_at = now + self._waiting[0][1] if self._waiting else inf
        return job


class Fair:
    """Processor sharing: all at once, each at weight ÷ (sum of the weights).

    ``_virtual`` is what a job of weight 1 would have received since the server was last idle: on this clock the end of
    a job is known when it arrives.
    """

    def __init__(self) -> None:
        self._ends: list[tuple[float, int, float]] = []
        self._virtual = 0.0
        self._at = 0.0
        self._weights = 0.0

    def arrive(self, job: int, size: float, weight: float, now: float) -> None:
        """One more to share with."""
        if self._ends:
            self._virtual += (now - self._at) / self._weights
        else:
            self._virtual = self._weights = 0.0
        self._at = now
        self._weights += weight
        heappush(self._ends, (self._virtual + size / weight, job, weight))

    def next_at(self) -> float:
        """The end of the job that has least left for its weight."""
        return self._at + max(0.0, self._ends[0][0] - self._virtual) * self._weights if self._ends else inf

    def advance(self, now: float) -> int | None:
        """That job has ended."""
        self._virtual, job, weight = heappop(self._ends)
        self._at = now
        self._weights -= weight
        return job


class Srpt:
    """The job with least left, which needs the sizes: no order has a smaller mean response time."""

    def __init__(self) -> None:
        self._left: list[tuple[float, int]] = []
        self._at = 0.0

    def arrive(self, job: int, size: float, weight: float, now: float) -> None:
        """It takes over if it is smaller than what is left of the one that is served."""
        del weight
        if self._left:
            left, served = self._left[0]
            heapreplace(self._left, (max(0.0, left - (now - self._at)), served))
        self._at = now
        heappush(self._left, (size, job))

    def next_at(self) -> float:
        """The end of the one that is served."""
        return self._at + self._left[0][0] if self._left else inf

    def advance(self, now: float) -> int | None:
        """It has ended."""
        self._at = now
        return heappop(self._left)[1]


class Las:
    """Least attained service first; jobs that have received the same share the server (LAS_MQ §2.1).

    Those form a group. Groups lie on a stack, the one that has received least on top; it alone is served, until it
    catches up with the next one and both become one.
    """

    def __init__(self) -> None:
        self._groups: list[_Group] = []
        self._at = 0.0

    def arrive(self, job: int, size: float, weight: float, now: float) -> None:
        """It has received nothing: with others of that kind, or alone, it is on top."""
        del weight
        if self._groups:
            top = self._groups[-1]
            top.attained += (now - self._at) / len(top.sizes)
        self._at = now
        if not self._groups or self._groups[-1].attained > 0:
            self._groups.append(_Group())
        heappush(self._groups[-1].sizes, (size, job))

    def next_at(self) -> float:
        """A job of the top group ends, or the group catches up with the next."""
        if not self._groups:
            return inf
        top = self._groups[-1]
        goal = min(top.sizes[0][0], self._below())
        return self._at + max(0.0, goal - top.attained) * len(top.sizes)

    def advance(self, now: float) -> int | None:
        """Whichever comes first; the end, where both do."""
        self._at = now
        top = self._groups[-1]
        if top.sizes[0][0] <= self._below():
            top.attained, job = heappop(top.sizes)
            if not top.sizes:
                self._groups.pop()
            return job
        self._groups.pop()
        self._groups[-1].join(top)
        return None

    def _below(self) -> float:
        return self._groups[-2].attained if len(self._groups) > 1 else inf


class _Group:
    """Jobs that have received the same: (size, job), the smallest first."""

    __slots__ = ("attained", "sizes")

    def __init__(self) -> None:
        self.attained = 0.0
        self.sizes: list[tuple[float, int]] = []

    def join(self, other: _Group) -> None:
        """Take in another group that has received as much; the smaller heap goes into the larger."""
        small, self.sizes = sorted((self.sizes, other.sizes), key=len)
        for entry in small:
            heappush(self.sizes, entry)
