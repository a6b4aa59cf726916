"""Figures of a round, as plain numbers. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from bench.mix.kinds import INTERACTIVE
from bench.mix.round import Done
from bench.mix.singles import HOG


def figures(every: Sequence[Done]) -> dict[str, float]:
    """Return the figures of a round; times in seconds.

    Times, and the counts of killed jobs and lost results, are those of all jobs but the memory hog. A slowdown is a
    job's time over the time that it takes alone.
    """
    done = [each for each in every if each.job.kind != HOG]
    with_deadline = [each for each in done if each.job.deadline_s]
    return {
        "jobs": len(done),
        "mean_s": fmean(each.took_s for each in done),
        "median_s": median(each.took_s for each in done),
        "mean_slowdown": fmean(each.took_s / each.job.alone_s for each in done),
        "p95_of_queries_s": p95([each.took_s for each in done if each.job.kind == INTERACTIVE]),
        "p95_of_smaller_half_s": p95([each.took_s for each in smaller_half(done)]),
        "makespan_s": max(each.ended_s for each in done),
        "deadlines": len(with_deadline),
        "deadlines_kept": sum(each.succeeded and each.ended_s <= each.job.deadline_s for each in with_deadline),
        "kept_promise_and_failed": sum(each.failures + (not each.succeeded) for each in done),
        "hogs_stopped": sum(not each.succeeded for each in every if each.job.kind == HOG),
    }


def smaller_half(done: Sequence[Done]) -> list[Done]:
    """Return the jobs that need the least CPU time: half of them, at least one."""
    return sorted(done, key=lambda each: each.job.cpu_s)[: max(1, len(done) // 2)]


def p95(values: Sequence[float]) -> float:
    """Return the least value that 95 % of them do not exceed; 0 where there are none."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1] if values else 0.0
