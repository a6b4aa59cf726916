"""FIFO, PS, LAS and SRPT. Each event costs O(log n) with n jobs present."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush, heapreplace
from math import inf


class Fifo:
    """First in, first out: one job at a time, in the order of arrival."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, float]] = deque()
        self._ends_at = inf

    def arrive(self, job: int, size: float, weight: float, now: float) -> None:
        """Append the job to the line."""
        del weight
        self._waiting.append((job, size))
        if len(self._waiting) == 1:
            self._ends_at = now + size

    def next_at(self) -> float:
        """Return the end of the first job in line."""
        return self._ends_at

    def advance(self, now: float) -> int | None:
        """Remove the first job in line, which has ended, and return it."""
        job, _ = self._waiting.popleft()
        self._ends_at = now + self._waiting[0][1] if self._waiting else inf
        return job


class Fair:
    """Processor sharing: all jobs at once, each at the rate weight ÷ (sum of the weights).

    ``_virtual`` is the work that a job of weight 1 would have received since the server was last idle. On this clock
    the end of a job is known when it arrives.
    """

    def __init__(self) -> None:
        self._ends: list[tuple[float, int, float]] = []
        self._virtual = 0.0
        self._at = 0.0
        self._weights = 0.0

    def arrive(self, job: int, size: float, weight: float, now: float) -> None:
        """Add the job to those that share the server."""
        if self._ends:
            self._virtual += (now - self._at) / self._weights
        else:
            self._virtual = self._weights = 0.0
        self._at = now
        self._weights += weight
        heappush(self._ends, (self._virtual + size / weight, job, weight))

    def next_at(self) -> float:
        """Return the end of the job with the least remaining work ÷ weight."""
        return self._at + max(0.0, self._ends[0][0] - self._virtual) * self._weights if self._ends else inf

    def advance(self, now: float) -> int | None:
        """Remove that job, which has ended, and return it."""
        self._virtual, job, weight = heappop(self._ends)
        self._at = now
        self._weights -= weight
        return job


class Srpt:
    """Shortest remaining processing time first. It needs the sizes; no order has a smaller mean response time."""

    def __init__(self) -> None:
        self._left: list[tuple[float, int]] = []
        self._at = 0.0

    def arrive(self, job: int, size: float, weight: float, now: float) -> None:
        """Add the job; it preempts the served job if its size is smaller than that job's remaining work."""
        del weight
        if self._left:
            left, served = self._left[0]
            heapreplace(self._left, (max(0.0, left - (now - self._at)), served))
        self._at = now
        heappush(self._left, (size, job))

    def next_at(self) -> float:
        """Return the end of the served job."""
        return self._at + self._left[0][0] if self._left else inf

    def advance(self, now: float) -> int | None:
        """Remove the served job, which has ended, and return it."""
        self._at = now
        return heappop(self._left)[1]


class Las:
    """Least attained service first; jobs that have received the same service share the server (LAS_MQ §2.1).

    Such jobs form a group. Groups lie on a stack, the group with the least service on top. Only the top group is
    served, until it catches up with the next group and both merge.
    """

    def __init__(self) -> None:
        self._groups: list[_Group] = []
        self._at = 0.0

    def arrive(self, job: int, size: float, weight: float, now: float) -> None:
        """Add the job to the top group if that has no service yet, else to a new group on top."""
        del weight
        if self._groups:
            top = self._groups[-1]
            top.attained += (now - self._at) / len(top.sizes)
        self._at = now
        if not self._groups or self._groups[-1].attained > 0:
            self._groups.append(_Group())
        heappush(self._groups[-1].sizes, (size, job))

    def next_at(self) -> float:
        """Return the time when a job of the top group ends or the group catches up with the next."""
        if not self._groups:
            return inf
        top = self._groups[-1]
        goal = min(top.sizes[0][0], self._below())
        return self._at + max(0.0, goal - top.attained) * len(top.sizes)

    def advance(self, now: float) -> int | None:
        """Remove and return the job that ended, or merge the top two groups and return None. An end goes first."""
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
    """Jobs that have received the same service: a heap of (size, job), the smallest size first."""

    __slots__ = ("attained", "sizes")

    def __init__(self) -> None:
        self.attained = 0.0
        self.sizes: list[tuple[float, int]] = []

    def join(self, other: _Group) -> None:
        """Merge another group with equal service; the smaller heap goes into the larger."""
        small, self.sizes = sorted((self.sizes, other.sizes), key=len)
        for entry in small:
            heappush(self.sizes, entry)
