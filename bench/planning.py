"""How long greedy planners take for many requests, and how it grows (Rayon §6.3.1, Fig. 12a: 35 to 130 ms).

Then, for few requests: the gain of the solver's plans over theirs, and its time.

python -m bench.planning
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from master.reservations.gree import Gree, Placed
from master.reservations.gree_l import GreeL
from master.reservations.measures import Measures, measure
from master.reservations.milp import solve
from master.reservations.plan import Plan
from master.reservations.rdl import Atom, Bundle, Expression, Order, Window, normalized
from research.papers.rayon import HORIZON, atoms, cluster, mixed

_PLANNERS: dict[str, Callable[[Plan], Gree]] = {"gree": Gree, "gree_l": GreeL}
_REPEAT = 7
_INSTANCES = 20
_CONTAINER = Bundle(cpu_cores=1.0, memory_bytes=2 * 10**9)


def took_ms(planner: Callable[[Plan], Gree], requests: Mapping[str, Expression], plan: Plan) -> float:
    """CPU time to place all of them, one after the other, in milliseconds."""
    by = planner(plan)
    began = time.thread_time()
    for name, expression in requests.items():
        by.promise(name, expression, 0, HORIZON)
    return (time.thread_time() - began) * 1e3


def few(kind: str, chance: Random) -> dict[str, Expression]:
    """Eight requests, or four orders, that two nodes have not always room for, in 24 steps."""
    found: dict[str, Expression] = {}
    for number in range(4 if kind == "orders of two" else 8):
        height, length = chance.randint(2, 6), chance.randint(3, 8)
        start = chance.randint(0, 24 - length)
        finish = min(24, start + length + chance.randint(0, 8))
        gang = Atom(_CONTAINER, height, height, length, height * length)
        loose = Atom(_CONTAINER, 1, height, 2, height * length)
        if kind == "orders of two":
            first = Atom(_CONTAINER, 1, height, 2, height * (length // 2))
            part: Expression = Order((first, Atom(_CONTAINER, height, height, 2, 2 * height)))
            finish = min(24, finish + 2)
        else:
            part = gang if kind == "gangs" or number % 2 else loose
        found[f"r{number}"] = normalized(Window(part, start, finish))
    return found


def judged(requests: Mapping[str, Expression], placed: Mapping[str, Placed | None]) -> Measures:
    plan = cluster(2)
    for name, given in placed.items():
        plan.add(name, (piece for pieces in given or () for piece in pieces))
    return measure(requests, placed, plan, 24)


def _cost(of: Measures) -> tuple[int, float, float]:
    return -of.accepted, -round(of.acceptance, 9), round(of.preemption, 9)


def solver() -> None:
    """Print the results of the solver and the greedy planners on the same few requests."""
    print(
        f"\n{_INSTANCES} seeds of eight requests or four orders on two nodes: accepted, share of the work, preemption;"
    )
    print("plans that are worse than GREE's or GREE-L's; CPU time of the solver, s")
    print(f"{'requests':<24}{'gree':>20}{'gree_l':>20}{'milp':>20}{'worse':>8}{'median':>8}{'most':>8}")
    for kind in ("gangs", "gangs and loose atoms", "orders of two"):
        found: dict[str, list[Measures]] = {"gree": [], "gree_l": [], "milp": []}
        took_s, worse = list[float](), 0
        for seed in range(_INSTANCES):
            requests = few(kind, Random(seed))
            for name, planner in _PLANNERS.items():
                by = planner(cluster(2))
                placed = {key: by.promise(key, each, 0, 24) for key, each in requests.items()}
                found[name].append(judged(requests, placed))
            began = time.process_time()
            solved = solve(cluster(2), requests, 24)
            took_s.append(time.process_time() - began)
            found["milp"].append(judged(requests, solved.placed))
            costs = [_cost(of[-1]) for of in found.values()]
            worse += costs[-1] > min(costs)
        cells = [
            f"{sum(of.accepted for of in each)} {statistics.mean(of.acceptance for of in each):.1%} "
            f"{sum(of.preemption for of in each):.1f}"
            for each in found.values()
        ]
        print(
            f"{kind:<24}{''.join(f'{cell:>20}' for cell in cells)}{worse:>8}"
            f"{statistics.median(took_s):>8.2f}{max(took_s):>8.2f}",
            flush=True,
        )


def main() -> int:
    """Print the tables."""
    print(f"CPU time to plan all requests, ms; medians of {_REPEAT} seeds")
    print(f"{'requests':<34}" + "".join(f"{name:>10}" for name in _PLANNERS))
    for jobs, nodes in ((100, 400), (300, 1200), (1000, 4000)):
        for what, make in (
            ("single atoms", partial(atoms, jobs, nodes)),
            ("orders of three", partial(mixed, jobs, nodes, 100, 1)),
        ):
            cells = []
            for planner in _PLANNERS.values():
                rounds = [took_ms(planner, make(Random(seed)), cluster(nodes)) for seed in range(_REPEAT)]
                cells.append(f"{statistics.median(rounds):>10.1f}")
            print(f"{f'{jobs} {what} on {nodes} nodes':<34}" + "".join(cells), flush=True)
    solver()
    return 0


if __name__ == "__main__":
    main()
