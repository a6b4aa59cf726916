"""The server: a clock that feeds arrivals to a discipline, which decides which jobs are served."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Protocol

import msgspec


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Work of ``size`` that arrives at ``at_s``. ``weight`` is its share relative to other jobs, for ``fair``.

    ``user`` and ``application`` identify similar earlier jobs. ``processes`` bounds the cores that the job can use at
    once (0: all); it applies only when jobs are ranked.
    """

    name: str
    at_s: float
    size: float
    weight: float = 1.0
    user: str = ""
    application: str = ""
    processes: int = 0


class Discipline(Protocol):
    """Decides which jobs are served, on a server that does one unit of work per unit of time. Times never decrease."""

    def arrive(self, job: int, size: float, weight: float, now: float) -> None:
        """Add a job that arrives now."""

    def next_at(self) -> float:
        """Return the time of the discipline's next own change if no job arrives before; infinity: never."""

    def advance(self, now: float) -> int | None:
        """Make the change due at the time that :meth:`next_at` returned; return the job that ended with it, or None."""


def serve(jobs: Sequence[Job], discipline: Discipline, *, rate_per_s: float = 1.0) -> list[float]:
    """Return the end of each job, in seconds. At equal times, ends go before arrivals.

    Args:
        jobs: in any order; sizes above zero, in the unit of which the server does ``rate_per_s`` each second.
        discipline: an unused one; its unit of work is one second of the server.
        rate_per_s: the server's rate.
    """
    ended_at_s = [inf] * len(jobs)
    arrivals = sorted(range(len(jobs)), key=lambda index: jobs[index].at_s)
    arrived = 0
    while True:
        change_at_s = discipline.next_at()
        arrival_at_s = jobs[arrivals[arrived]].at_s if arrived < len(arrivals) else inf
        if change_at_s <= arrival_at_s:
            if change_at_s == inf:
                return ended_at_s
            ended = discipline.advance(change_at_s)
            if ended is not None:
                ended_at_s[ended] = change_at_s
        else:
            job = jobs[arrivals[arrived]]
            discipline.arrive(arrivals[arrived], job.size / rate_per_s, job.weight, arrival_at_s)
            arrived += 1
