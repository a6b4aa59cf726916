"""How long greedy planners take for many requests, and how it grows (Rayon §6.3.1, Fig. 12a: 35 to 130 ms).

python -m bench.planning
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from functools import partial
from random import Random

from master.reservations.gree import Gree
from master.reservations.gree_l import GreeL
from master.reservations.plan import Plan
from master.reservations.rdl import Expression
from simulator.paper.rayon import HORIZON, atoms, cluster, mixed

_PLANNERS = {"gree": Gree, "gree_l": GreeL}
_REPEAT = 7


def took_ms(planner: type[Gree], requests: Mapping[str, Expression], plan: Plan) -> float:
    """CPU time to place all of them, one after the other, in milliseconds."""
    by = planner(plan)
    began = time.thread_time()
    for name, expression in requests.items():
        by.promise(name, expression, 0, HORIZON)
    return (time.thread_time() - began) * 1e3


def main() -> int:
    """Print the table."""
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
    return 0


if __name__ == "__main__":
    main()
