"""Simulate ranked jobs on the cores of one node: weights a fixed factor apart, as the kernel's ``cpu.weight`` allows.

The server is work-conserving: a job with fewer processes than cores leaves the other cores to the next job. The order
is computed whenever a job arrives or ends, and at fixed intervals in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from master.ordering import ClusterView, JobSizes, JobView, Multilevel, OrderingSettings, ordering_of
from simulator.fluid.engine import Job

#: A job whose remaining work is below this fraction of its size has ended; the rest is rounding error.
_NOTHING = 1e-12


@dataclass(slots=True)
class Present:
    """A job that has arrived and not ended. ``left`` and ``attained`` are in units of work.

    ``most`` is the fraction of the server that its processes can use; ``rate`` is the fraction that it gets.
    """

    number: int
    job: Job
    most: float
    left: float
    attained: float = 0.0
    rate: float = 0.0


#: The present jobs, in the order of arrival → the same jobs, first rank to last.
Order = Callable[[Sequence[Present]], list[Present]]


class Ranked:
    """A discipline with weights by rank: each of the first ``places − 1`` jobs weighs ``ratio`` times the next.

    All jobs behind them weigh 1 each.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        order: Order,
        *,
        rate_per_s: float = 1.0,
        cores: int = 1,
        ratio: float = 16.0,
        places: int = 4,
        look_s: float = 1.0,
        ended: Callable[[Job], None] = lambda job: None,
    ) -> None:
        """``ended`` is called with each job that ends."""
        self._jobs = jobs
        self._order = order
        self._rate_per_s = rate_per_s
        self._cores = cores
        self._weights = [ratio ** (places - 1 - place) for place in range(places)]
        self._look_s = look_s
        self._ended = ended
        self._present: dict[int, Present] = {}
        self._at = 0.0
        self._look_at = inf
        self._end_at = inf
        self._first: Present | None = None

    def arrive(self, job: int, size: float, weight: float, now: float) -> None:
        """Add the job and rank it at once."""
        del size, weight
        self._catch_up(now)
        one = self._jobs[job]
        most = min(one.processes or self._cores, self._cores) / self._cores
        self._present[job] = Present(job, one, most, one.size)
        self._look()

    def next_at(self) -> float:
        """Return the time when a job ends or the order is next computed."""
        return min(self._end_at, self._look_at)

    def advance(self, now: float) -> int | None:
        """Remove the job that ended, if one did, compute the order, and return the job or None."""
        ends = self._first if self._end_at <= self._look_at else None
        self._catch_up(now)
        if ends is not None:
            del self._present[ends.number]
            self._ended(ends.job)
        self._look()
        return ends.number if ends is not None else None

    def _catch_up(self, now: float) -> None:
        done = (now - self._at) * self._rate_per_s
        for one in self._present.values():
            one.attained += done * one.rate
            one.left -= done * one.rate
        self._at = now

    def _look(self) -> None:
        """Rank the jobs, and share the server among them until the next event."""
        several = len(self._present) > 1
        order = self._order(list(self._present.values())) if several else list(self._present.values())
        last = len(self._weights) - 1
        share(order, [self._weights[min(place, last)] for place in range(len(order))])
        self._look_at = self._at + self._look_s if several else inf
        self._end_at, self._first = inf, None
        for one in order:
            left = 0.0 if one.left <= _NOTHING * one.job.size else one.left
            at = self._at + left / (one.rate * self._rate_per_s)
            if at < self._end_at:
                self._end_at, self._first = at, one


def share(order: Sequence[Present], weights: Sequence[float]) -> None:
    """Set the rate of each job: share the server by weight, each job at most at the rate its processes can use."""
    open_, free = list(zip(order, weights, strict=True)), 1.0
    while open_:
        unit = free / sum(weight for _, weight in open_)
        full = [one for one, weight in open_ if weight * unit >= one.most]
        if not full:
            for one, weight in open_:
                one.rate = weight * unit
            return
        for one in full:
            one.rate = one.most
            free -= one.most
        filled = {one.number for one in full}
        open_ = [(one, weight) for one, weight in open_ if one.number not in filled]
        if free <= _NOTHING:
            free = _NOTHING  # not zero, as rates are divisors: the jobs behind wait, and their ends are far away


def by_arrival(present: Sequence[Present]) -> list[Present]:
    """Return the jobs by arrival: first come, first served."""
    return sorted(present, key=_came)


def by_attained(present: Sequence[Present]) -> list[Present]:
    """Return the jobs by attained service, the least first."""
    return sorted(present, key=lambda one: (one.attained, *_came(one)))


def by_left(present: Sequence[Present]) -> list[Present]:
    """Return the jobs by remaining work, the least first. This order needs the sizes."""
    return sorted(present, key=lambda one: (one.left, *_came(one)))


def by_queue(levels: Multilevel) -> Order:
    """Return the order of LAS_MQ: by queue, first come, first served within one."""
    return lambda present: sorted(present, key=lambda one: (levels.queue_of(one.attained), *_came(one)))


class LearntOrder:
    """The master's own ordering ``gittins`` and the sizes that it learns, which stand for container-seconds."""

    def __init__(self) -> None:
        self._sizes = JobSizes()
        self._ordering = ordering_of(OrderingSettings("gittins"), self._sizes)

    def order(self, present: Sequence[Present]) -> list[Present]:
        """Return the jobs ranked; an :data:`Order`."""
        views = [
            JobView(
                str(place),
                submitted_at=one.job.at_s,
                sequence=one.number,
                service=one.attained,
                user=one.job.user,
                application=one.job.application,
            )
            for place, one in enumerate(present)
        ]
        return [present[int(place)] for place in self._ordering.rank(views, ClusterView()).order()]

    def ended(self, job: Job) -> None:
        """Learn the size of a job that ended."""
        self._sizes.learn(job.user, job.application, job.size)


def _came(one: Present) -> tuple[float, int]:
    return one.job.at_s, one.number
