"""Figures of a round, as plain numbers and as a Markdown table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median

from bench.mix.round import Done


def figures(done: Sequence[Done]) -> dict[str, float]:
    """Return the figures of a round; times in seconds. A slowdown is a job's time over its unloaded CPU time."""
    return {
        "jobs": len(done),
        "mean_s": fmean(each.took_s for each in done),
        "median_s": median(each.took_s for each in done),
        "mean_slowdown": fmean(each.took_s / each.job.cpu_s for each in done),
        "makespan_s": max(each.ended_s for each in done),
        "failed": sum(each.exit_status != 0 or not each.has_result for each in done),
    }


def table(ways: Mapping[str, Mapping[str, float]]) -> str:
    """Return a row for each way."""
    names = list(next(iter(ways.values())))
    rows = ["| way | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    rows += [f"| {way} | " + " | ".join(f"{of[name]:.4g}" for name in names) + " |" for way, of in ways.items()]
    return "\n".join(rows)
