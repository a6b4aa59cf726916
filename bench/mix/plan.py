"""Draw the jobs of one round from a seed: users, kinds, sizes and arrivals. Pure: the same seed gives the same plan.

The load is computed from CPU times that a calibration measures, each kind alone on an idle machine.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.mix.jobs import USERS, Cost, Job, Kind, Series
from bench.mix.singles import NIGHTLY_KIND, archive_job, hog_job, nightly_job, nightly_series

#: The load is drawn from this range, and a round's load lies within it.
LEAST_LOAD, MOST_LOAD = 0.7, 0.9
#: Sizes of one-off jobs: a bounded Pareto distribution. Its largest value is many times its median.
SHAPE, LARGEST = 1.1, 40.0
#: The part of arrivals that are runs of a recurring series, whose size varies little from run to run.
RECURRING = 0.6
SERIES_SPREAD = 0.1
_SERIES_PER_KIND = 2
#: Draws that do not fit below the load's upper bound are drawn again, so many times at most.
_TRIES = 1_000


@dataclass(frozen=True)
class Plan:
    """The jobs of one round, in the order of their arrival, and the archive that may run beside them.

    ``series`` are run once each in the first pass.
    """

    seed: int
    window_s: float
    cores: float
    series: tuple[Series, ...]
    jobs: tuple[Job, ...]
    archive: Job

    @property
    def load(self) -> float:
        """Return the CPU time of all jobs over the CPU time that the cores have in the window."""
        return sum(job.cpu_s for job in self.jobs) / (self.cores * self.window_s)


def first_pass(plan: Plan, costs: Mapping[str, Cost]) -> Plan:
    """Return a plan in which each of the recurring series runs once, all from the beginning."""
    jobs = [_job(of, costs[of.kind], 0.0, recurring=True) for of in plan.series]
    return dataclasses.replace(plan, jobs=_numbered(jobs))


def draw_plan(seed: int, kinds: Sequence[Kind], costs: Mapping[str, Cost], *, window_s: float, cores: float) -> Plan:
    """Draw a plan.

    Jobs are drawn until their CPU time, with that of the nightly job, reaches a load drawn from the bounds. Arrivals
    are uniform in the window, which is a Poisson process, given its number of arrivals.

    Raises:
        ValueError: the window is too short for such jobs: no number of them has a load within the bounds.
    """
    draw = random.Random(seed)
    of_nights = nightly_series(draw, costs[NIGHTLY_KIND], window_s)
    nightly = nightly_job(draw, of_nights, costs[NIGHTLY_KIND], window_s)
    singles = [nightly, hog_job(draw, window_s)]
    series = _draw_series(draw, kinds)
    drawn = _draw_jobs(draw, kinds, costs, series, nightly.cpu_s, cores * window_s)
    jobs = [_job(of, costs[of.kind], draw.uniform(0.0, window_s), recurring=recurring) for of, recurring in drawn]
    numbered = _numbered([*jobs, *singles])
    return Plan(seed, window_s, cores, (*series, of_nights), numbered, archive_job(draw, len(numbered)))


def pareto(draw: random.Random, largest: float = LARGEST) -> float:
    """Return a size of at least 1 and at most ``largest`` from the bounded Pareto distribution."""
    low, high = 1.0, largest**-SHAPE
    return float((low - draw.random() * (low - high)) ** (-1 / SHAPE))


def _draw_series(draw: random.Random, kinds: Sequence[Kind]) -> tuple[Series, ...]:
    """Draw the recurring series; their users take turns, so that each user has some."""
    made: list[Series] = []
    for kind in kinds:
        for number in range(_SERIES_PER_KIND):
            units = pareto(draw) if kind.sized else 1.0
            made.append(Series(f"{kind.name}-series-{number}", USERS[len(made) % len(USERS)], kind.name, units))
    return tuple(made)


def _draw_jobs(
    draw: random.Random,
    kinds: Sequence[Kind],
    costs: Mapping[str, Cost],
    series: Sequence[Series],
    used_s: float,
    budget_s: float,
) -> list[tuple[Series, bool]]:
    """Draw jobs until the load is reached; ``used_s`` of ``budget_s`` core-seconds are taken already.

    Raises:
        ValueError: no number of jobs has a load within the bounds.
    """
    wanted_s = draw.uniform(LEAST_LOAD, MOST_LOAD) * budget_s
    drawn: list[tuple[Series, bool]] = []
    tries = 0
    while used_s < wanted_s:
        each = _draw_job(draw, kinds, series)
        cpu_s = costs[each[0].kind].cpu_s(each[0].units)
        if used_s + cpu_s <= MOST_LOAD * budget_s:
            drawn.append(each)
            used_s += cpu_s
        elif used_s >= LEAST_LOAD * budget_s:
            break
        elif (tries := tries + 1) > _TRIES:
            raise ValueError("the window is too short for jobs of this size")
    return drawn


def _draw_job(draw: random.Random, kinds: Sequence[Kind], series: Sequence[Series]) -> tuple[Series, bool]:
    """Return the work of one arrival, with its own size, and whether it is a run of a series."""
    kind = draw.choices(kinds, weights=[each.share for each in kinds])[0]
    if draw.random() < RECURRING:
        typical = draw.choice([each for each in series if each.kind == kind.name])
        varied = typical.units * draw.lognormvariate(0.0, SERIES_SPREAD) if kind.sized else 1.0
        return Series(typical.application, typical.user, kind.name, varied), True
    units = pareto(draw) if kind.sized else 1.0
    return Series(kind.name, draw.choice(USERS), kind.name, units), False


def _job(of: Series, cost: Cost, arrival_s: float, *, recurring: bool) -> Job:
    cpu_s, alone_s = cost.cpu_s(of.units), cost.alone_s(of.units)
    return Job(0, of.user, of.kind, of.application, recurring, of.units, cpu_s, alone_s, arrival_s)


def _numbered(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Return the jobs in the order of their arrival, and numbered so."""
    ordered = sorted(jobs, key=lambda job: job.arrival_s)
    return tuple(dataclasses.replace(job, number=number) for number, job in enumerate(ordered))
