"""The gain that any order of the jobs can have on a plan. Pure.

The mean time of a job with the true sizes known, where starting a job costs nothing and no job is slowed by another
one, beside equal shares of the same jobs under the same conditions.

Work flows in both: a job gets any part of a processor, but no more than it can use (CPU time over the time that it
takes alone). Jobs of the kind *send* share the link and take no processor.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from bench.mix.jobs import Job
from bench.mix.kinds import SEND
from bench.mix.singles import HOG

#: The least use of a job that waits for a disk or a network, so that it ends.
_LEAST_USE = 0.05
#: Below this a job has ended (seconds of a processor, or of the link).
_NOTHING = 1e-9
#: Jobs in the order of their remaining work, with the most that each can use, and the capacity → the part of each.
Share = Callable[[Sequence[float], float], list[float]]


def shortest_first(uses: Sequence[float], capacity: float) -> list[float]:
    """Give the job with the least left as much as it can use, then the next one: SRPT."""
    given = []
    for use in uses:
        given.append(min(use, capacity))
        capacity -= given[-1]
    return given


def equal_shares(uses: Sequence[float], capacity: float) -> list[float]:
    """Give all the same; the unused part of one is divided among the others: max-min fairness, as by the kernel."""
    given = [0.0] * len(uses)
    for left, place in enumerate(sorted(range(len(uses)), key=uses.__getitem__)):
        given[place] = min(uses[place], capacity / (len(uses) - left))
        capacity -= given[place]
    return given


def mean_s(jobs: Iterable[Job], cores: float, share: Share) -> float:
    """Return the mean time of a job from its arrival to its end, in seconds, without the memory hog."""
    some = [job for job in jobs if job.kind != HOG]
    over_link = [job for job in some if job.kind == SEND]
    computing = [job for job in some if job.kind != SEND]
    return fmean([*_times_s(over_link, 1.0, share), *_times_s(computing, cores, share)])


def _times_s(jobs: Sequence[Job], capacity: float, share: Share) -> list[float]:
    """Return how long each of the jobs takes that share one resource."""
    coming = sorted(jobs, key=lambda job: job.arrival_s)
    left: dict[Job, float] = {}
    took_s = []
    now_s = 0.0
    while coming or left:
        if not left:
            now_s = max(now_s, coming[0].arrival_s)
        while coming and coming[0].arrival_s <= now_s:
            job = coming.pop(0)
            left[job] = work_s(job)
        rates = _rates(left, capacity, share)
        until = [work / rates[job] for job, work in left.items() if rates[job] > 0]
        if coming:
            until.append(coming[0].arrival_s - now_s)
        step_s = min(until)
        now_s += step_s
        left = {job: work - rates[job] * step_s for job, work in left.items()}
        for job in [job for job, work in left.items() if work <= _NOTHING]:
            took_s.append(now_s - job.arrival_s)
            del left[job]
    return took_s


def work_s(job: Job) -> float:
    """Return the seconds of a processor, or of the link, that a job needs."""
    return job.alone_s if job.kind == SEND else max(job.cpu_s, _LEAST_USE * job.alone_s)


def use_cores(job: Job) -> float:
    """Return the number of processors that a job keeps busy alone; a transfer can use the whole link."""
    return 1.0 if job.kind == SEND else work_s(job) / job.alone_s


def _rates(left: Mapping[Job, float], capacity: float, share: Share) -> dict[Job, float]:
    ordered = sorted(left, key=lambda job: (left[job] / use_cores(job), job.number))
    return dict(zip(ordered, share([use_cores(job) for job in ordered], capacity), strict=True))


def slowed(jobs: Iterable[Job], factor: float) -> list[Job]:
    """Return the jobs, each of which computes and takes so many times as long; transfers take as long as before."""
    return [
        job if job.kind == SEND else dataclasses.replace(job, cpu_s=factor * job.cpu_s, alone_s=factor * job.alone_s)
        for job in jobs
    ]


def told(jobs: Sequence[Job], cores: float, took_cpu_s: float | None = None) -> str:
    """Return both means, and their difference, as text.

    ``took_cpu_s``: the CPU time that the machine took for all the jobs. Beside others a job takes more than alone
    (caches, memory, processors that are threads of one), so that the text also has the means for jobs that are slower
    by the same factor each.
    """
    text = f"without any cost of starting a job: {_means(jobs, cores)}"
    alone_s = sum(job.cpu_s for job in jobs)
    if took_cpu_s is None or not alone_s:
        return text
    factor = took_cpu_s / alone_s
    means = _means(slowed(jobs, factor), cores)
    return f"{text}; with the CPU time that the machine took, {factor:.2f} of the plan's: {means}"


def _means(jobs: Sequence[Job], cores: float) -> str:
    ideal_s, equal_s = (mean_s(jobs, cores, share) for share in (shortest_first, equal_shares))
    gain = 1 - ideal_s / equal_s if equal_s else math.nan
    ideal = f"mean {ideal_s:.4g} s by the least left with true sizes"
    return f"{ideal}, {equal_s:.4g} s with equal shares ({gain:.0%} between them)"
