"""Draw the jobs of one round from a seed: users, kinds, sizes and arrivals. Pure: the same seed gives the same plan.

The load is computed from CPU times that a calibration measures, each kind alone on an idle machine.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

USERS = ("alice", "bob", "carol")
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
class Cost:
    """The unloaded CPU time of a kind of work: a fixed part, and a part for each unit of size."""

    base_cpu_s: float
    unit_cpu_s: float

    def cpu_s(self, units: float) -> float:
        """Return the CPU time of a job of this size."""
        return self.base_cpu_s + self.unit_cpu_s * units


@dataclass(frozen=True)
class Kind:
    """A kind of work. ``share`` is its part of arrivals. A kind that is not ``sized`` has one unit each time."""

    name: str
    share: float
    sized: bool = True


@dataclass(frozen=True)
class Job:
    """One arrival. ``application`` is the name by which a scheduler may recognize recurring work."""

    number: int
    user: str
    kind: str
    application: str
    recurring: bool
    units: float
    cpu_s: float
    arrival_s: float


@dataclass(frozen=True)
class Series:
    """Recurring work of one user: a kind, and its typical size."""

    application: str
    user: str
    kind: str
    units: float


@dataclass(frozen=True)
class Plan:
    """The jobs of one round, in the order of their arrival. ``series`` are run once each in the first pass."""

    seed: int
    window_s: float
    cores: float
    series: tuple[Series, ...]
    jobs: tuple[Job, ...]

    @property
    def load(self) -> float:
        """Return the CPU time of all jobs over the CPU time that the cores have in the window."""
        return sum(job.cpu_s for job in self.jobs) / (self.cores * self.window_s)


def first_pass(plan: Plan, costs: Mapping[str, Cost]) -> Plan:
    """Return a plan in which each of the recurring series runs once, all from the beginning."""
    jobs = tuple(
        Job(number, of.user, of.kind, of.application, True, of.units, costs[of.kind].cpu_s(of.units), 0.0)
        for number, of in enumerate(plan.series)
    )
    return Plan(plan.seed, plan.window_s, plan.cores, plan.series, jobs)


def draw_plan(seed: int, kinds: Sequence[Kind], costs: Mapping[str, Cost], *, window_s: float, cores: float) -> Plan:
    """Draw a plan.

    Jobs are drawn until their CPU time reaches a load drawn from the bounds. Arrivals are uniform in the window, which
    is a Poisson process, given its number of arrivals.

    Raises:
        ValueError: the window is too short for such jobs: no number of them has a load within the bounds.
    """
    draw = random.Random(seed)
    budget_s = cores * window_s
    series = _draw_series(draw, kinds)
    wanted_s = draw.uniform(LEAST_LOAD, MOST_LOAD) * budget_s
    drawn: list[tuple[Series, bool, float]] = []
    used_s, tries = 0.0, 0
    while used_s < wanted_s:
        each = _draw_job(draw, kinds, series)
        cpu_s = costs[each[0].kind].cpu_s(each[0].units)
        if used_s + cpu_s <= MOST_LOAD * budget_s:
            drawn.append((*each, cpu_s))
            used_s += cpu_s
        elif used_s >= LEAST_LOAD * budget_s:
            break
        elif (tries := tries + 1) > _TRIES:
            raise ValueError(f"a window of {window_s:g} s is too short for jobs of this size")
    arrivals_s = sorted(draw.uniform(0.0, window_s) for _ in drawn)
    jobs = tuple(
        Job(number, of.user, of.kind, of.application, recurring, of.units, cpu_s, arrival_s)
        for number, ((of, recurring, cpu_s), arrival_s) in enumerate(zip(drawn, arrivals_s, strict=True))
    )
    return Plan(seed, window_s, cores, series, jobs)


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


def _draw_job(draw: random.Random, kinds: Sequence[Kind], series: Sequence[Series]) -> tuple[Series, bool]:
    """Return what one arrival runs, with its own size, and whether it is a run of a series."""
    kind = draw.choices(kinds, weights=[each.share for each in kinds])[0]
    if draw.random() < RECURRING:
        typical = draw.choice([each for each in series if each.kind == kind.name])
        varied = typical.units * draw.lognormvariate(0.0, SERIES_SPREAD) if kind.sized else 1.0
        return Series(typical.application, typical.user, kind.name, varied), True
    units = pareto(draw) if kind.sized else 1.0
    return Series(kind.name, draw.choice(USERS), kind.name, units), False
