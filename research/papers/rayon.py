"""Rayon (MSR-TR-2013-108): planning by the master's own planners. A benchmark, not this module, measures their time.

The paper shows Workload A only as pictures of its distributions (Fig. 11). Here a request has a number of parallel
containers, a lease, and work that is a multiple of their product, all log-uniform, in a window with some slack. All
requests together ask for the cluster's capacity, which is four containers per node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from statistics import mean

from master.reservations.gree import Gree, Placed
from master.reservations.gree_l import GreeL
from master.reservations.measures import Measures, measure
from master.reservations.milp import solve
from master.reservations.plan import Plan
from master.reservations.rdl import All, Atom, Bundle, Expression, Order, Window, normalized, parse
from research.papers import rayon_sla
from research.papers.claims import Claim, Inputs, Row
from research.papers.rows import change, row

_CONTAINER = Bundle(cpu_cores=1.0, memory_bytes=2 * 10**9)
_PER_NODE = 4
HORIZON = 3000
_SEEDS = range(5)
_SIZES = ((100, 400), (300, 1200), (1000, 4000))

Requests = Mapping[str, Expression]
ByPlanner = dict[str, list[Measures]]
_PLANNERS: dict[str, Callable[[Plan], Gree]] = {
    "gree": Gree,
    "gree_l": partial(GreeL, fallback=False),
    "fallback": GreeL,
}


def _example(_: Inputs) -> list[Row]:
    text = "window(order(atom(b,1,10,240,2400),atom(b,1,20,120,2400),atom(b,1,15,120,1800)),0,800)"
    asked = normalized(parse(text, bundles={"b": _CONTAINER}).expression)
    placed = Gree(cluster(100)).place(asked, 0, 800) or []
    ours = ", ".join(f"[{p.start}, {p.finish}) at {p.number}" for pieces in placed for p in pieces)
    paper = "[320, 560) at 10, [560, 680) at 20, [680, 800) at 15"
    return [row(what="GREE's promises", paper=paper, ours=ours, holds=ours == paper, why="It is another plan.")]


def _growing(_: Inputs) -> list[Row]:
    found = {jobs: _each(partial(atoms, jobs, nodes), nodes) for jobs, nodes in _SIZES}
    return [
        row(
            what="GREE-L accepts a little less work than GREE (by jobs)",
            paper="slightly lower",
            ours=_said(found, "gree_l", _acceptance),
            holds=all(-0.2 <= _ratio(by, "gree_l", _acceptance) - 1 <= 0.0 for by in found.values()),
            why="More than 20 % less, or not less at all.",
        ),
        row(
            what="GREE-L needs less preemption than GREE (downward steps)",
            paper="substantially less",
            ours=_said(found, "gree_l", _preemption),
            holds=all(_ratio(by, "gree_l", _preemption) <= 0.8 for by in found.values()),
            why="By less than a fifth.",
        ),
        row(
            what="GREE-L is more uniform than GREE (deviation ÷ mean of the plan's utilization)",
            paper="about 20 %",
            ours=_said(found, "gree_l", _uniformity),
            holds=all(_ratio(by, "gree_l", _uniformity) <= 0.9 for by in found.values()),
            why="By less than a tenth: it accepts less here, and load and slack of the requests are our assumptions.",
        ),
        row(
            what="beyond the paper, GREE-L that falls back to GREE: accepts no less than GREE, with less preemption",
            paper="",
            ours=f"{_said(found, 'fallback', _acceptance)}; {_said(found, 'fallback', _preemption)}",
            holds=all(
                _ratio(by, "fallback", _acceptance) >= 1.0 and _ratio(by, "fallback", _preemption) <= 0.8
                for by in found.values()
            ),
            why="It accepts less, or preempts nearly as much.",
        ),
    ]


def _complex(_: Inputs) -> list[Row]:
    rows = []
    for what, part in (("gangs (workload B)", 0), ("dependencies (workload C)", 1)):
        found = {percent: _each(partial(mixed, 100, 400, percent, part), 400) for percent in (0, 50, 100)}
        rows.append(
            row(
                what=f"GREE-L's preemption against GREE's, by percent of jobs with {what}",
                paper="less throughout",
                ours=_said(found, "gree_l", _preemption),
                holds=all(_ratio(by, "gree_l", _preemption) < 1 for by in found.values()),
                why="Gangs and leases leave little to flatten.",
            )
        )
    return rows


def _small(_: Inputs) -> list[Row]:
    """Try the MILP on problems so small that the solver proves optimality: a time limit would make results vary."""
    ours: ByPlanner = {name: [] for name in (*_PLANNERS, "milp")}
    for seed in _SEEDS:
        requests = _tight(8, _chance(seed))
        for name, placed, plan in _planned(requests, 2, 24):
            ours[name].append(measure(requests, placed, plan, 24))
    accepted = {name: mean(each.acceptance for each in of) for name, of in ours.items()}
    preempts = {name: mean(each.preemption for each in of) for name, of in ours.items()}
    return [
        row(
            what="MILP accepts more work than GREE where requests are few and large",
            paper="+20 to +40 %",
            ours=change(accepted["milp"], accepted["gree"]),
            holds=accepted["milp"] >= 1.1 * accepted["gree"],
            why="The gain depends on how little slack the requests have, which is our assumption.",
        ),
        row(
            what="and still needs less preemption, by work",
            paper="substantially less",
            ours=change(preempts["milp"] / accepted["milp"], preempts["gree"] / accepted["gree"]),
            holds=preempts["milp"] / accepted["milp"] < preempts["gree"] / accepted["gree"],
            why="Requests are rigid here.",
        ),
    ]


# ---------------------------------------------------------------- requests


def _chance(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - chance that must repeat


def _log_uniform(rng: Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _atom(nodes: int, rng: Random, *, gang: bool) -> Atom:
    parallelism = round(_log_uniform(rng, 2, nodes * _PER_NODE / 8))
    lease = round(_log_uniform(rng, 10, 150))
    work = parallelism * lease * (1 if gang else rng.randint(1, 4))
    return Atom(_CONTAINER, parallelism if gang else 1, parallelism, lease, work)


def _around(part: Expression, least: int, rng: Random) -> Expression:
    """Return the expression in a window with log-uniform slack: 0.1 to 4 times its least length, within the horizon."""
    length = min(HORIZON, math.ceil(least * (1 + _log_uniform(rng, 0.1, 4))))
    start = rng.randint(0, HORIZON - length)
    return normalized(Window(part, start, start + length))


def _least(atom: Atom) -> int:
    return max(atom.lease, -(-atom.work // atom.parallelism))


def atoms(jobs: int, nodes: int, rng: Random) -> Requests:
    """Return requests of one atom each that together ask for about the cluster's capacity."""
    requests: dict[str, Expression] = {}
    for number in range(jobs):
        atom = _atom(nodes, rng, gang=False)
        requests[f"a{number}"] = _around(atom, _least(atom), rng)
    return _scaled(requests, nodes)


def _scaled(requests: Requests, nodes: int) -> Requests:
    """Scale the heights of all requests so that they ask for about the cluster's capacity; none exceeds the cluster."""
    for _ in range(6):
        asked = sum(_work(each) for each in requests.values())
        factor = nodes * _PER_NODE * HORIZON / asked
        requests = {name: _times(each, factor, nodes * _PER_NODE) for name, each in requests.items()}
    return requests


def _work(expression: Expression) -> int:
    return expression.work if isinstance(expression, Atom) else sum(_work(part) for part in _parts(expression))


def _times(expression: Expression, factor: float, most: int) -> Expression:
    if isinstance(expression, Atom):
        before = expression.parallelism
        height = max(1, min(most, round(before * factor)))
        gang = height if expression.gang > 1 else 1
        work = max(height * expression.lease, expression.work // before * height)
        return Atom(_CONTAINER, gang, height, expression.lease, work, expression.start, expression.finish)
    parts = tuple(_times(part, factor, most) for part in _parts(expression))
    return Order(parts) if isinstance(expression, Order) else All(parts)


def _parts(expression: Expression) -> tuple[Expression, ...]:
    assert isinstance(expression, Order | All)
    return expression.parts


def mixed(jobs: int, nodes: int, percent: int, part: int, rng: Random) -> Requests:
    """Return requests of which ``percent`` are gangs (``part`` 0) or orders of three atoms (``part`` 1)."""
    requests: dict[str, Expression] = {}
    for number in range(jobs):
        other = number * 100 < percent * jobs
        if other and part == 1:
            atoms = tuple(_atom(nodes, rng, gang=False) for _ in range(3))
            requests[f"c{number}"] = _around(Order(atoms), sum(map(_least, atoms)), rng)
        else:
            atom = _atom(nodes, rng, gang=other)
            requests[f"{'b' if other else 'a'}{number}"] = _around(atom, _least(atom), rng)
    return _scaled(requests, nodes)


def _tight(jobs: int, rng: Random) -> Requests:
    """Return a few gangs for two nodes and 24 steps."""
    requests = {}
    for number in range(jobs):
        height, length = rng.randint(2, 6), rng.randint(3, 8)
        start = rng.randint(0, 24 - length)
        finish = min(24, start + length + rng.randint(0, 8))
        gang = Atom(_CONTAINER, height, height, length, height * length, start, finish)
        requests[f"r{number}"] = gang
    return requests


# ---------------------------------------------------------------- plans


def cluster(nodes: int) -> Plan:
    containers = nodes * _PER_NODE
    return Plan(Bundle(cpu_cores=float(containers), memory_bytes=containers * _CONTAINER.memory_bytes))


def _each(workload: Callable[[Random], Requests], nodes: int) -> ByPlanner:
    """Return planner → the measures of each seed."""
    found: ByPlanner = {name: [] for name in _PLANNERS}
    for seed in _SEEDS:
        requests = workload(_chance(seed))
        for name, make in _PLANNERS.items():
            plan = cluster(nodes)
            by = make(plan)
            placed = {key: by.promise(key, each, 0, HORIZON) for key, each in requests.items()}
            found[name].append(measure(requests, placed, plan, HORIZON))
    return found


def _planned(requests: Requests, nodes: int, horizon: int) -> list[tuple[str, Mapping[str, Placed | None], Plan]]:
    """Return (planner, placements, plan) for every planner, including the MILP."""
    found: list[tuple[str, Mapping[str, Placed | None], Plan]] = []
    for name, make in _PLANNERS.items():
        plan = cluster(nodes)
        by = make(plan)
        found.append((name, {key: by.promise(key, each, 0, horizon) for key, each in requests.items()}, plan))
    plan = cluster(nodes)
    solved = solve(plan, requests, horizon, time_limit_s=600.0)
    for key, placed in solved.placed.items():
        plan.add(key, (piece for pieces in placed or () for piece in pieces))
    return [*found, ("milp", solved.placed, plan)]


def _ratio(by: ByPlanner, planner: str, of: Callable[[Measures], float]) -> float:
    """Return the planner's mean ÷ GREE's mean."""
    return mean(map(of, by[planner])) / mean(map(of, by["gree"]))


def _said(found: Mapping[int, ByPlanner], planner: str, of: Callable[[Measures], float]) -> str:
    return ", ".join(f"{size}: {change(_ratio(by, planner, of), 1.0)}" for size, by in found.items())


def _acceptance(measures: Measures) -> float:
    return measures.acceptance


def _preemption(measures: Measures) -> float:
    return measures.preemption


def _uniformity(measures: Measures) -> float:
    return measures.uniformity


CLAIMS = [
    Claim(name="rayon/fig09", where="Rayon §4.2, Fig. 9", run=_example),
    Claim(name="rayon/fig12", where="Rayon §6.3.1, Fig. 12", run=_growing),
    Claim(name="rayon/fig12-milp", where="Rayon §6.3.1, Fig. 12", run=_small),
    Claim(name="rayon/fig14", where="Rayon §6.3.2, Fig. 14", run=_complex),
    *rayon_sla.CLAIMS,
]
