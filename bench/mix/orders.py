"""``python -m bench.mix.orders``: the results of orders of the jobs on the plans, in a model of the machine.

Work flows as in :mod:`bench.mix.ideal`: a start costs nothing, and a job gets any part of a processor. The jobs are
ordered anew at each arrival and end, and once in a second. A job with a reservation is the first from the time that it
has reserved on, and the last before (``--anticipated``: the first only while it has received less than is promised
until then). Transfers are left out, because they share the link in every order. The orders:

- *equal*: no order, equal shares of the processors (:mod:`bench.mix.ideal`), no reservation;
- *nothing*: ``gittins`` as the master computes it, which learns the size of each job that ends;
- *known*: the same, after each recurring series has run once;
- *distributions*: the Gittins index with the true distribution of each job's size, which is unknown in practice: it
  bounds the gain by learning;
- *clairvoyant*: the least left first, with the true size of each job.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Protocol

import numpy as np

from bench.mix.__main__ import costs as costs_file
from bench.mix.__main__ import minutes, seeds
from bench.mix.calibration import COSTS, costs_of
from bench.mix.ideal import equal_shares, mean_s, shortest_first, slowed, use_cores, work_s
from bench.mix.jobs import Cost, Job
from bench.mix.kinds import KINDS, SEND
from bench.mix.plan import SERIES_SPREAD, Plan, draw_plan, first_pass, pareto
from bench.mix.singles import HOG
from bench.mix.through_penstock import reserved_s
from master.ordering import ClusterView, JobSizes, JobView, OrderingSettings, ordering_of
from master.ordering.gittins import indices
from master.ordering.sizes import CELLS, Floats, cell_of

#: The order is computed so often, as the agent samples the use of the jobs.
_LOOK_S = 1.0
_NOTHING = 1e-9
#: Sizes drawn for a distribution.
_DRAWS = 4000
_SIZED = {kind.name for kind in KINDS if kind.sized}


class Order(Protocol):
    """Ranks jobs by their service."""

    def ranked(self, received_s: Mapping[Job, float]) -> list[Job]:
        """Return the jobs, the first first; ``received_s`` is the CPU time of each."""

    def ended(self, job: Job) -> None:
        """Take note of the end of a job."""


class Clairvoyant:
    """The least left first."""

    def ranked(self, received_s: Mapping[Job, float]) -> list[Job]:
        """Return the jobs, the first first."""
        return sorted(received_s, key=lambda job: ((work_s(job) - received_s[job]) / use_cores(job), job.number))

    def ended(self, job: Job) -> None:
        """Know it already."""


class Learning:
    """The master's own ``gittins`` with the sizes of the jobs that have ended."""

    def __init__(self, before: Sequence[Job] = ()) -> None:
        """``before``: jobs that have ended already."""
        self._sizes = JobSizes()
        self._ordering = ordering_of(OrderingSettings("gittins"), self._sizes)
        for job in before:
            self.ended(job)

    def ranked(self, received_s: Mapping[Job, float]) -> list[Job]:
        """Return the jobs, the first first."""
        by_name = {str(place): job for place, job in enumerate(received_s)}
        views = [
            JobView(
                name,
                submitted_at=job.arrival_s,
                sequence=int(name),
                service=received_s[job],
                user=job.user,
                application=job.application,
                needs=math.inf,
            )
            for name, job in by_name.items()
        ]
        return [by_name[name] for name in self._ordering.rank(views, ClusterView()).order()]

    def ended(self, job: Job) -> None:
        """Learn its size."""
        self._sizes.learn(job.user, job.application, work_s(job))


class TrueDistributions:
    """The Gittins index with the distribution that each job's size was drawn from."""

    def __init__(self, plan: Plan, costs: Mapping[str, Cost], factor: float) -> None:
        """``factor``: how much slower jobs are than alone."""
        self._typical = {series.application: series.units for series in plan.series}
        self._costs, self._factor = costs, factor
        self._draw = random.Random(0)
        self._known: dict[str, Floats] = {}

    def ranked(self, received_s: Mapping[Job, float]) -> list[Job]:
        """Return the jobs, the first first."""
        jobs = list(received_s)
        known = np.array([self._distribution(job) for job in jobs])
        index = indices(known, np.array([received_s[job] for job in jobs])).tolist()
        ranked = sorted(zip(jobs, index, strict=True), key=lambda one: (-one[1], one[0].arrival_s))
        return [job for job, _ in ranked]

    def ended(self, job: Job) -> None:
        """Learn nothing: all is known."""

    def _distribution(self, job: Job) -> Floats:
        """Return the probability of each cell of the size; of an application, or of one-off jobs of a kind."""
        if job.application not in self._known:
            cells = np.zeros(CELLS)
            for _ in range(_DRAWS):
                cells[cell_of(self._factor * self._costs[job.kind].cpu_s(self._units(job)))] += 1
            self._known[job.application] = cells / _DRAWS
        return self._known[job.application]

    def _units(self, job: Job) -> float:
        """Draw a size, as :mod:`bench.mix.plan` does."""
        if job.kind not in _SIZED:
            return 1.0
        if job.recurring:
            return self._typical.get(job.application, job.units) * self._draw.lognormvariate(0.0, SERIES_SPREAD)
        return pareto(self._draw)


def run(
    jobs: Sequence[Job], cores: float, order: Order, *, anticipated: bool = False, unreserved: bool = False
) -> float:
    """Return the mean time of a job from its arrival to its end in this order, in seconds.

    ``anticipated``: what a job received before its reserved time counts as a part of its promise. ``unreserved``: a job
    with a deadline has no reservation, and is a job as all others.
    """

    def place(job: Job) -> int:
        if unreserved or not job.deadline_s:
            return 1
        promised_s = now_s - (job.deadline_s - reserved_s(job))
        return 2 if promised_s < 0 or (anticipated and received_s[job] >= promised_s + _LOOK_S) else 0

    coming = sorted(jobs, key=lambda job: job.arrival_s)
    received_s: dict[Job, float] = {}
    took_s = []
    now_s = 0.0
    while coming or received_s:
        if not received_s:
            now_s = max(now_s, coming[0].arrival_s)
        while coming and coming[0].arrival_s <= now_s:
            received_s[coming.pop(0)] = 0.0
        ranked = sorted(order.ranked(received_s), key=place)
        rates = dict(zip(ranked, shortest_first([use_cores(job) for job in ranked], cores), strict=True))
        until = [(work_s(job) - received_s[job]) / rate for job, rate in rates.items() if rate > 0]
        step_s = min(_LOOK_S, *until, *(job.arrival_s - now_s for job in coming[:1]))
        now_s += step_s
        received_s = {job: received + rates[job] * step_s for job, received in received_s.items()}
        for job in [job for job, received in received_s.items() if work_s(job) - received <= _NOTHING]:
            took_s.append(now_s - job.arrival_s)
            order.ended(job)
            del received_s[job]
    return fmean(took_s)


def means_s(
    plan: Plan, costs: Mapping[str, Cost], factor: float, *, anticipated: bool = False, unreserved: bool = False
) -> dict[str, float]:
    """Return by order the mean time of the plan's jobs, in seconds, where each computes ``factor`` times as long.

    ``anticipated``, ``unreserved``: see :func:`run`. Equal shares know no reservation.
    """
    jobs = [job for job in slowed(plan.jobs, factor) if job.kind not in (HOG, SEND)]
    before = slowed(first_pass(plan, costs).jobs, factor)
    orders: dict[str, Callable[[], Order]] = {
        "nothing": Learning,
        "known": lambda: Learning(before),
        "distributions": lambda: TrueDistributions(plan, costs, factor),
        "clairvoyant": Clairvoyant,
    }
    made = {
        name: run(jobs, plan.cores, make(), anticipated=anticipated, unreserved=unreserved)
        for name, make in orders.items()
    }
    return {"equal": mean_s(jobs, plan.cores, equal_shares), **made}


def main(arguments: list[str]) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.mix.orders", description=__doc__)
    parser.add_argument(
        "--costs", type=costs_file, default=str(COSTS), metavar="FILE", help="a run's `calibration` [%(default)s]"
    )
    parser.add_argument("--seeds", type=seeds, default=8, metavar="N", help="plans, from seed 1 on [8]")
    parser.add_argument("--minutes", type=minutes, default=6.0, metavar="M", help="of arrivals, one or more [6]")
    parser.add_argument("--factor", type=float, default=1.1, help="how much slower a job is beside others [1.1]")
    parser.add_argument(
        "--anticipated", action="store_true", help="a job's service before its reserved time counts towards it"
    )
    parser.add_argument("--unreserved", action="store_true", help="nobody reserves for the job with a deadline")
    options = parser.parse_args(arguments)
    if not 0.1 <= options.factor <= 10:
        parser.error(f"--factor: {options.factor:g} is no number from 0.1 to 10")
    costs = costs_of(options.costs.encode())
    rows: list[dict[str, float]] = []
    for seed in range(1, options.seeds + 1):
        plan = draw_plan(seed, KINDS, costs, window_s=60 * options.minutes, cores=2.0)
        rows.append(
            means_s(plan, costs, options.factor, anticipated=options.anticipated, unreserved=options.unreserved)
        )
        if seed == 1:
            print("| seed | jobs | load | " + " | ".join(rows[0]) + " |\n" + "|---" * (3 + len(rows[0])) + "|")
        cells = " | ".join(f"{value:.1f}" for value in rows[-1].values())
        print(f"| {seed} | {len(plan.jobs)} | {plan.load:.2f} | {cells} |", flush=True)
    print("| mean | | | " + " | ".join(f"{fmean(row[name] for row in rows):.1f}" for name in rows[0]) + " |")


if __name__ == "__main__":
    main(sys.argv[1:])
