"""The server: arrivals on one side, a discipline that says who is served on the other, and a clock between them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Protocol

import msgspec


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Work of ``size`` that arrives at ``at_s``. ``weight`` is its share against others, for ``fair``.

    ``user`` and ``application`` say which earlier jobs it is like; ``processes`` bounds the cores that it can use at
    once (0: all), where jobs are ranked.
    """

    name: str
    at_s: float
    size: float
    weight: float = 1.0
    user: str = ""
    application: str = ""
    processes: int = 0


class Discipline(Protocol):
    """Who is served, on a server that does one unit of work per unit of time. Times never go back."""

    def arrive(self, job: int, size: float, weight: float, now: float) -> None:
        """A job is here."""

    def next_at(self) -> float:
        """When the discipline itself changes something, if nobody arrives before; infinity: never."""

    def advance(self, now: float) -> int | None:
        """That time, which :meth:`next_at` named, has come; the job that ended with it, if one did."""


def serve(jobs: Sequence[Job], discipline: Discipline, *, rate_per_s: float = 1.0) -> list[float]:
    """When each job ends, in seconds. At the same moment, what ends goes before what arrives.

    Args:
        jobs: in any order; sizes above zero, in the unit of which the server does ``rate_per_s`` each second.
        discipline: a fresh one; its own unit of work is one second of the server.
        rate_per_s: of the server.
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
