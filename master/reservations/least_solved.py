"""PURE. The least amount that an atom can be given in the free capacity, by a solver: for atoms too large for
:mod:`least`.

The solver is HiGHS, which comes with scipy. The first use imports scipy, and not the start of a master: the import
takes some tenths of a second and 60 MB, and most masters never use the solver.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import numpy as np

from master.reservations.rdl import Atom

#: Number of steps from the edge examined: the time of a solution grows with them (some 40 ms for 40).
STEPS = 128
#: Limit of HiGHS's search nodes, instead of a time limit, so that equal questions get equal answers.
_NODES = 500


def least_solved(atom: Atom, rooms: Iterable[float], below: int, *, nearest: bool = True) -> list[int] | None:
    """Return the bundles of each step with the smallest sum, if it is below ``below``; as near the edge as possible.

    Args: rooms: number of bundles that fit in each step, from the edge at which the atom is placed. below:
    bundle-steps. nearest: search until no other such allocation is nearer the edge, which takes most of the time.

    Returns: Bundles, from the edge on; None if nothing gives less, or if the solver gave up.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import block_array, diags_array, eye_array, tril

    gang, lease = atom.gang, atom.lease
    room = np.array([min(int(each), atom.parallelism) for each in islice(rooms, STEPS)], dtype=float)
    room[room < gang] = 0
    steps = len(room)
    if steps < lease:
        return None
    one = eye_array(steps)
    # Columns: bundles in each step, bundles arriving in it, whether there are any. A bundle that arrived within the
    # last ``lease`` steps is still present; none arrives so late that its lease would end after the last step.
    came = tril(np.ones((steps, steps))) - tril(np.ones((steps, steps)), -lease)
    matrix = block_array(
        [
            [one - diags_array(np.ones(steps - 1), offsets=-1), -one, None],
            [-one, came, None],
            [one, None, -gang * one],
            [one, None, -diags_array(room)],
            [np.ones((1, steps)), None, None],
        ],
        format="csr",
    )
    low = np.concatenate([np.full(2 * steps, -np.inf), np.zeros(steps), np.full(steps, -np.inf), [atom.work]])
    high = np.concatenate([np.zeros(2 * steps), np.full(steps, np.inf), np.zeros(steps), [below - 1]])
    comes = np.where(np.arange(steps) + lease <= steps, float(atom.parallelism), 0.0)
    # Each bundle-step costs 1, plus an amount that grows with the distance from the edge and sums to less than 1/2.
    near = 1 + np.arange(steps) / (2.0 * steps * max(1, below))
    # Within this gap of the least cost, which is below the least sum plus 1/2, there is no larger sum.
    gap = 0.0 if nearest else 0.49 / below
    found = milp(
        c=np.concatenate([near, np.zeros(2 * steps)]),
        integrality=np.ones(3 * steps),
        bounds=Bounds(0, np.concatenate([room, comes, np.minimum(room, 1)])),
        constraints=LinearConstraint(matrix, low, high),
        options={"mip_rel_gap": gap, "node_limit": _NODES},
    )
    return None if found.x is None else [round(float(each)) for each in found.x[:steps]]
