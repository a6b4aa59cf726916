"""The Gittins index: the order with the least mean response time if only the distribution of sizes is known.

Gittins (1979); Aalto, Ayesta and Righter, "On the Gittins index in the M/G/1 queue" (2009). Tiresias (NSDI'19) orders
GPU jobs by it. With exactly known sizes it is SRPT, with a decreasing hazard rate LAS, with an increasing one first
come, first served. The distributions are those of ended jobs, by user and application. A job of which no run is known,
or that has outlasted them all, is ranked by the work that its announced tasks leave (R of Ursa §4.2.2). One that has
outlasted all known runs and announced nothing is expected to need at least as much again as it has received, as if the
sizes beyond the known ones had a Pareto distribution of exponent 1: the sizes of other applications tell little of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property

import numpy as np

from master.ordering.multilevel import Multilevel
from master.ordering.policy import ClusterView, JobView, Ranking, Reason, Strict
from master.ordering.sizes import CELLS, EDGES, LEAST, Floats, JobSizes
from penstock.model import KINDS
from penstock.model.units import counted, format_duration

_LOWER, _UPPER = EDGES[:-1, None], EDGES[1:, None]
_WIDTH = _UPPER - _LOWER
#: The queues of jobs without known sizes: fine steps, up to 2^38 container-seconds (docs/benchmarks/order-of-jobs.md).
UNKNOWN = Multilevel(queues=40, first_threshold=0.5, step=2.0)
#: The service below each of these queues: the threshold of the queue before.
_BELOW: Floats = np.array([0.0, *map(UNKNOWN.upper, range(UNKNOWN.queues - 1))])
#: The largest index in each of these queues of a job that has outlasted all known runs of its application.
_AT_MOST = [1.0 / max(UNKNOWN.upper(0), below) for below in _BELOW.tolist()]
#: The size beyond which jobs are not distinguished, in container-seconds.
_LARGEST = float(EDGES[-1])
#: The number of jobs per block, whose arrays fit into a core's cache.
_BLOCK = 128


def indices(probabilities: Floats, attained: Floats) -> Floats:
    """Return the Gittins index of each job: the largest probability to end for the service that it takes.

    ``probabilities`` are those of the cells of the size, one row for each job, and uniform within a cell; the rest to 1
    is the probability that the job never ends. ``attained`` is the service received so far. The index is the maximum
    over Δ of P(size − a ≤ Δ | size > a) ÷ E[min(size − a, Δ) | size > a], in ends per container-second; 0 if no larger
    size is known. The maximum is at the end of a cell, as the hazard rate grows within one.
    """
    found = [np.zeros(0)]
    for first in range(0, len(attained), _BLOCK):
        jobs = slice(first, first + _BLOCK)
        found.append(_indices(np.ascontiguousarray(probabilities[jobs].T), attained[jobs]))
    return np.concatenate(found)


def _indices(known: Floats, attained: Floats) -> Floats:
    """Return the indices; ``known`` is cells × jobs, so that sums over the cells are sums of whole rows."""
    begin = np.maximum(_LOWER, attained)
    ends = known * np.maximum(0.0, (_UPPER - begin) / _WIDTH)
    never = np.maximum(0.0, 1.0 - known.sum(axis=0))
    done = np.cumsum(ends, axis=0)
    beyond = np.maximum(0.0, done[-1] + never - done)
    taken = np.cumsum(ends * ((begin + _UPPER) / 2 - attained), axis=0)
    taken += beyond * np.maximum(0.0, _UPPER - attained)
    return np.asarray(np.divide(done, taken, out=np.zeros_like(done), where=(done > 0) & (taken > 0)).max(axis=0))


def medians_left(probabilities: Floats, attained: Floats) -> Floats:
    """Return the service within which half of the jobs end that have received as much as each of these.

    The arguments are those of :func:`indices`; infinite if at least half of such jobs are larger than all known sizes.
    """
    begin = np.maximum(EDGES[:-1], attained[:, None])
    ends = probabilities * np.clip((EDGES[1:] - begin) / np.diff(EDGES), 0.0, 1.0)
    done = np.cumsum(ends, axis=1)
    never = np.maximum(0.0, 1.0 - probabilities.sum(axis=1))
    half = (done[:, -1] + never) / 2
    cell = np.argmax(done >= half[:, None], axis=1)
    row = np.arange(len(attained))
    lower, part = begin[row, cell], ends[row, cell]
    within = np.divide(half - done[row, cell] + part, part, out=np.zeros_like(part), where=part > 0)
    left = lower + within * (EDGES[cell + 1] - lower) - attained
    return np.where((done[:, -1] >= half) & (part > 0), left, np.inf)


def announced(jobs: Sequence[JobView], queues: Sequence[int], cluster: ClusterView) -> Floats:
    """Return the container-seconds that each job still needs by the tasks that it has announced; 0 if that is unknown.

    ``queues`` are the jobs' queues by service. R is in seconds of the whole cluster, so it is multiplied by the slots
    of each kind. The result is at least the service of the queue below the job's own: frameworks may announce only
    their next stages, and a job that was given much is not believed to need little.
    """
    with np.errstate(over="ignore"):
        work = np.array([job.remaining for job in jobs]).reshape(-1, len(KINDS)) * cluster.capacity[: len(KINDS)]
        left = np.minimum(work.sum(axis=1), _LARGEST)
    # Below the least size nothing is announced.
    return np.where(left >= LEAST, np.maximum(left, _BELOW[np.array(queues, np.int64)]), 0.0)


class Gittins:
    """Ranks jobs by their index, the largest first; jobs beyond all known sizes by queues of the service received."""

    remembers = False

    def __init__(self, sizes: JobSizes) -> None:
        """``sizes`` is shared with the code that learns from ended jobs."""
        self._sizes = sizes

    def rank(self, jobs: Sequence[JobView], cluster: ClusterView) -> Ranking:
        """Rank by index; the index of an only job is computed for readers."""
        return _Only(jobs[0], lambda: self._rank(jobs, cluster)) if len(jobs) == 1 else self._rank(jobs, cluster)

    def _rank(self, jobs: Sequence[JobView], cluster: ClusterView) -> _ByIndex:
        """Rank by index; equal indices, such as of jobs without known sizes, by queues of LAS_MQ, then by submission.

        Ordered by service alone, equal jobs would alternate until they all end late, as under plain Linux.
        """
        kinds = [(job.user, job.application) for job in jobs]
        known = self._sizes.probabilities(kinds) if kinds else np.zeros((0, CELLS))
        index = indices(known, np.array([job.service for job in jobs])).tolist()
        queues = [UNKNOWN.queue_of(job.service) for job in jobs]
        largest = [self._sizes.largest(job.user, job.application) for job in jobs]
        left_s = self._announced_s(jobs, largest, queues, cluster)
        outlasted: set[str] = set()
        for place, job in enumerate(jobs):
            if job.job in left_s:
                index[place] = 1.0 / left_s[job.job]
            elif -math.inf < largest[place] < job.service and index[place] > (most := _AT_MOST[queues[place]]):
                index[place] = most
                outlasted.add(job.job)
            elif left_s and not self._sizes:
                # It is expected to need as much again as it has received. Else it would go behind all that announce.
                index[place] = 1.0 / UNKNOWN.upper(queues[place])
        ranked = sorted(zip(jobs, index, queues, strict=True), key=lambda one: (-one[1], one[2], *one[0].earliest))
        return _ByIndex([(job, of_job) for job, of_job, _ in ranked], jobs, known, self._sizes, left_s, outlasted)

    def _announced_s(
        self, jobs: Sequence[JobView], largest: Sequence[float], queues: Sequence[int], cluster: ClusterView
    ) -> dict[str, float]:  # fmt: skip
        """Return the work that is left of jobs that have announced their tasks, unless earlier runs tell more.

        These include what is not announced yet. A job that has outlasted them all, the ``largest`` too, is judged by
        its tasks again.
        """
        some = [
            (job, queue)
            for job, queue, known in zip(jobs, queues, largest, strict=True)
            if job.needs < math.inf and job.service > known and any(job.remaining)
        ]
        left = announced([job for job, _ in some], [queue for _, queue in some], cluster).tolist() if some else ()
        return {job.job: own for (job, _), own in zip(some, left, strict=True) if own}


class _Only(Strict):
    """The ranking of one job, which is the first with any index."""

    def __init__(self, job: JobView, ranked: Callable[[], _ByIndex]) -> None:
        super().__init__([job.job], {}, lambda job: ranked().reason(job))
        self._service = job.service

    def why(self, job: str) -> str:
        """Return that the job is alone, and its service."""
        return f"gittins: the only job, after {counted(self._service, 'container-second', digits=4)}"


class _ByIndex(Strict):
    def __init__(
        self,
        ranked: list[tuple[JobView, float]],
        jobs: Sequence[JobView],
        known: Floats,
        sizes: JobSizes,
        announced_s: Mapping[str, float],
        outlasted: AbstractSet[str],
    ) -> None:
        """``known`` has a row of probabilities for each of ``jobs``; ``announced_s`` has the jobs ranked by their
        tasks, and what is left of these; ``outlasted`` has those that have received more than all runs known of them.
        """
        super().__init__([job.job for job, _ in ranked], {}, self._explained)
        self._ranked = {job.job: (job, index) for job, index in ranked}
        self._jobs = jobs
        self._known = known
        self._sizes = sizes
        self._announced_s = announced_s
        self._outlasted = outlasted

    def why(self, job: str) -> str:
        """Return the index, and the numbers of known jobs behind it, as text."""
        view, index = self._ranked[job]
        application, user, everybody = self._sizes.count(view.user, view.application)
        if job in self._announced_s:
            left = counted(self._announced_s[job], "container-second", digits=4)
            return (
                f"gittins: index {index:.3g}, as its announced tasks leave {left} after {view.service:.4g}; "
                f"no known job of {view.application} took longer"
            )
        if job in self._outlasted:
            so_far = counted(view.service, "container-second", digits=4)
            known = counted(round(application), "known job")
            return (
                f"gittins: index {index:.3g}, as it has received {so_far}, more than the {known} of {view.application}"
            )
        return (
            f"gittins: index {index:.3g} after {counted(view.service, 'container-second', digits=4)}; known are "
            f"{counted(round(application), 'job')} of {view.application}, {user:.0f} of {view.user}, "
            f"{everybody:.0f} of all"
        )

    @cached_property
    def _left_s(self) -> dict[str, float]:
        left = medians_left(self._known, np.array([job.service for job in self._jobs]))
        return dict(zip((job.job for job in self._jobs), left.tolist(), strict=True))

    def _explained(self, job: str) -> Reason:
        """Return the expected rest of the job, and the number of known jobs behind it, as text and numbers."""
        view, index = self._ranked[job]
        known_jobs = round(self._sizes.count(view.user, view.application)[0])
        so_far, known = f"{format_duration(view.service)} of service so far", self._said_of_known(view)
        if job in self._announced_s:
            left_s, queue = self._announced_s[job], UNKNOWN.queue_of(view.service)
            if queue and left_s <= UNKNOWN.upper(queue - 1):
                more = "more than was expected of its announced tasks"
                return Reason(f"{so_far}, queue {queue + 1}: {more}", queue=queue + 1, known_jobs=known_jobs)
            said = f"{so_far}; the tasks that it has announced need about {format_duration(left_s)} more"
            return Reason(said, left_s=left_s, known_jobs=known_jobs)
        left_s = self._left_s[job] if job not in self._outlasted else math.inf
        if math.isfinite(left_s):
            like = f"half of the jobs like it that received as much ended within {format_duration(left_s)} more"
            return Reason(f"{so_far}; {like} ({known})", left_s=left_s, known_jobs=known_jobs)
        if index and job not in self._outlasted:
            return Reason(f"{so_far}; what is left of it cannot be told ({known})", known_jobs=known_jobs)
        queue = UNKNOWN.queue_of(view.service) + 1
        more = f", more than any job like it ({known})" if known else ": no job like it is known"
        return Reason(f"{so_far}, queue {queue}{more}", queue=queue, known_jobs=known_jobs)

    def _said_of_known(self, view: JobView) -> str:
        """Return the number of known jobs of the most specific kind that has any, as text; empty if there is none."""
        kinds = (f"of {view.application} by {view.user}", f"by {view.user}", "by others")
        counts = map(round, self._sizes.count(view.user, view.application))
        return next(
            (f"known: {counted(count, 'job')} {of}" for of, count in zip(kinds, counts, strict=True) if count), ""
        )
