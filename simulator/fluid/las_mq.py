"""Simulate LAS_MQ on a server without containers: a multilevel queue whose queues share the server (LAS_MQ §3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import inf

#: The busy queues (numbers, in order) → the fraction of the server that each of them gets; the sum is 1.
Shares = Callable[[Sequence[int]], dict[int, float]]


class LasMq:
    """A multilevel queue. New jobs enter the first queue; a job whose service reaches the threshold moves to the next.

    Each busy queue serves its first job with the queue's whole share: a job of this model can use any share
    (Algorithm 2, line 6, with unlimited demand). §3.3 orders a queue by the containers that jobs still need. This model
    has no containers, so each queue is in order of entry ("FIFO is a good start").

    Args:
        uppers: the thresholds of the queues, growing, in the unit of the sizes; the last is infinity.
        shares: how the busy queues divide the server.
    """

    def __init__(self, uppers: Sequence[float], shares: Shares) -> None:
        self._uppers = uppers
        self._shares = shares
        self._queues: list[deque[_Served]] = [deque() for _ in uppers]
        self._rates: dict[int, float] = {}
        self._at = 0.0
        self._next: tuple[float, int] = (inf, 0)

    def arrive(self, job: int, size: float, weight: float, now: float) -> None:
        """Append the job to the first queue."""
        del weight
        self._catch_up(now)
        self._queues[0].append(_Served(job, size))
        self._plan()

    def next_at(self) -> float:
        """Return the time when the first job of a queue ends or leaves the queue."""
        return self._next[0]

    def advance(self, now: float) -> int | None:
        """Return the job that ended, or move the job to the next queue and return None."""
        self._catch_up(now)
        queue = self._next[1]
        served = self._queues[queue].popleft()
        if served.size > self._uppers[queue]:
            served.attained = self._uppers[queue]
            self._queues[queue + 1].append(served)
            self._plan()
            return None
        self._plan()
        return served.job

    def _catch_up(self, now: float) -> None:
        elapsed = now - self._at
        for queue, rate in self._rates.items():
            self._queues[queue][0].attained += elapsed * rate
        self._at = now

    def _plan(self) -> None:
        """Set the rate of each queue's first job from now on, and the next event."""
        busy = [queue for queue, jobs in enumerate(self._queues) if jobs]
        if busy != list(self._rates):
            self._rates = {queue: rate for queue, rate in self._shares(busy).items() if rate > 0} if busy else {}
        self._next = (inf, 0)
        for queue, rate in self._rates.items():
            first = self._queues[queue][0]
            left = max(0.0, min(first.size, self._uppers[queue]) - first.attained)
            self._next = min(self._next, (self._at + left / rate, queue))


class _Served:
    """A job and the service that it has received."""

    __slots__ = ("attained", "job", "size")

    def __init__(self, job: int, size: float) -> None:
        self.job = job
        self.size = size
        self.attained = 0.0


def strict(busy: Sequence[int]) -> dict[int, float]:
    """Return the shares of strict priority: the first busy queue gets everything (the example of §2.1)."""
    return {busy[0]: 1.0}
