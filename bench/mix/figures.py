"""Figures of a round, as plain numbers and as a Markdown table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median

from bench.mix.kinds import INTERACTIVE
from bench.mix.round import Done


def figures(done: Sequence[Done]) -> dict[str, float]:
    """Return the figures of a round; times in seconds. A slowdown is a job's time over its unloaded CPU time."""
    return {
        "jobs": len(done),
        "mean_s": fmean(each.took_s for each in done),
        "median_s": median(each.took_s for each in done),
        "p95_of_smaller_half_s": p95([each.took_s for each in smaller_half(done)]),
        "p95_of_queries_s": p95([each.took_s for each in done if each.job.kind == INTERACTIVE]),
        "mean_slowdown": fmean(each.took_s / each.job.cpu_s for each in done),
        "makespan_s": max(each.ended_s for each in done),
        "failed": sum(each.exit_status != 0 or not each.has_result for each in done),
    }


def smaller_half(done: Sequence[Done]) -> list[Done]:
    """Return the jobs that need the least CPU time: half of them, at least one."""
    return sorted(done, key=lambda each: each.job.cpu_s)[: max(1, len(done) // 2)]


def p95(values: Sequence[float]) -> float:
    """Return the least value that 95 % of them do not exceed; 0 where there are none."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1] if values else 0.0


def mean_of(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each figure over the rounds of a way, and the least and highest mean time of a job."""
    names = dict.fromkeys(name for each in rounds for name in each)
    means = {name: fmean(each.get(name, 0.0) for each in rounds) for name in names}
    of_rounds = [each["mean_s"] for each in rounds]
    return means | {"mean_s from": min(of_rounds), "to": max(of_rounds)}


def table(ways: Mapping[str, Mapping[str, float]]) -> str:
    """Return a row for each way."""
    names = list(dict.fromkeys(name for of in ways.values() for name in of))
    rows = ["| way | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    rows += [
        f"| {way} | " + " | ".join(f"{of.get(name, 0.0):.4g}" for name in names) + " |" for way, of in ways.items()
    ]
    return "\n".join(rows)
