"""``python -m bench.mix.windows``: the greatest gain by an order, by the length of the window. It runs nothing.

At the same load, a longer window has longer queues, and larger jobs in them: there is more to order. For each length
the table has, over eight plans, the part by which the mean job ends sooner by the least left with true sizes than with
equal shares (``ideal.py``), with the CPU time that jobs take alone, and with 1.15 times that, as beside others.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from statistics import fmean

from bench.mix.calibration import COSTS, costs_of
from bench.mix.ideal import equal_shares, mean_s, shortest_first, slowed
from bench.mix.jobs import Cost
from bench.mix.kinds import KINDS
from bench.mix.plan import draw_plan

_MINUTES = (1, 3, 6, 10, 20, 30, 60)
_SEEDS = range(1, 9)
_FACTORS = (1.0, 1.15)
#: Of the benchmark's machine.
_CORES = 2.0


def gains(costs: Mapping[str, Cost], minutes: float, factor: float) -> list[float]:
    """Return for each plan the part by which an ideal order shortens the mean time of a job under equal shares."""
    gained = []
    for seed in _SEEDS:
        plan = draw_plan(seed, KINDS, dict(costs), window_s=60.0 * minutes, cores=_CORES)
        jobs = slowed(plan.jobs, factor)
        gained.append(1 - mean_s(jobs, _CORES, shortest_first) / mean_s(jobs, _CORES, equal_shares))
    return gained


def rows(costs: Mapping[str, Cost]) -> Iterator[str]:
    """Return the lines of the table: for each window the mean gain, the least and the most, for each factor."""
    yield "| minutes | as alone | from, to | 1.15 times the CPU time | from, to |"
    yield "|---|---|---|---|---|"
    for minutes in _MINUTES:
        told = [gains(costs, minutes, factor) for factor in _FACTORS]
        cells = [cell for each in told for cell in (f"{fmean(each):.0%}", f"{min(each):.0%}, {max(each):.0%}")]
        yield f"| {minutes} | {' | '.join(cells)} |"


def main() -> int:
    """Print the table."""
    for row in rows(costs_of(COSTS.read_bytes())):
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
