"""Planning many requests at once as a mixed-integer linear program (Rayon §4.1), solved by HiGHS.

The best that the language and the plan allow, for as many requests as a solver can take: tens of orders, hundreds of
atoms. Time is cut into slots of ``quantum`` steps. Within them the model has what the paper's has, (1)–(17): capacity,
parallelism, demand, gangs, leases, choices, orders, overflow instead of infeasibility, and least preemption. Leases are
those of the language (each bundle stays), not only those of rigid jobs, and order has one boundary for each pair
instead of starts and finishes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from master.reservations.gree import Placed
from master.reservations.plan import Piece, Plan
from master.reservations.rdl import All, Any, Atom, Expression, Order, Window

#: What a request that is not placed costs, beside changes of height of at most this much in all.
_REJECTED, _CHANGES = 1.0, 1e-3


@dataclass(frozen=True, slots=True)
class Solved:
    """``placed``: request → what it is given, for each atom; None where it is rejected.

    ``optimal``: nothing better exists; else it is the best that was found in time.
    """

    placed: Mapping[str, Placed | None]
    optimal: bool


def solve(
    plan: Plan,
    requests: Mapping[str, Expression],
    now: int,
    horizon: int,
    *,
    quantum: int = 1,
    time_limit_s: float = 60.0,
) -> Solved | None:
    """Place what can be placed within [now, horizon) of what is free in the plan, which stays as it is.

    None: not even a first solution was found in time. Expressions are in their normal form.
    """
    model = _Model(now, (horizon - now) // quantum, quantum)
    roots = {name: model.binary(cost=-_REJECTED) for name in requests}
    trees = {name: model.expression(each, roots[name]) for name, each in requests.items()}
    model.capacity(plan)
    x, optimal = model.solved(time_limit_s)
    if x is None:
        return None
    placed = {name: model.placed(trees[name], x) if x[roots[name]] > 0.5 else None for name in requests}
    return Solved(placed, optimal)


@dataclass(slots=True)
class _AtomVars:
    """Of one atom: which variable its height is in each slot."""

    atom: Atom
    height: dict[int, int]
    busy: dict[int, int]


@dataclass(slots=True)
class _Model:
    now: int
    slots: int
    quantum: int
    atoms: list[_AtomVars] = field(default_factory=list)
    _cost: list[float] = field(default_factory=list)
    _upper: list[float] = field(default_factory=list)
    _rows: list[tuple[dict[int, float], float, float]] = field(default_factory=list)

    # ------------------------------------------------------------ variables and constraints

    def integer(self, upper: float, cost: float = 0.0) -> int:
        """A whole number from 0 on."""
        self._cost.append(cost)
        self._upper.append(upper)
        return len(self._cost) - 1

    def binary(self, cost: float = 0.0) -> int:
        return self.integer(1.0, cost)

    def bound(self, terms: Mapping[int, float], low: float = -np.inf, high: float = np.inf) -> None:
        """low ≤ Σ coefficient × variable ≤ high."""
        self._rows.append((dict(terms), low, high))

    # ------------------------------------------------------------ the language

    def expression(self, expression: Expression, chosen: int) -> list[_AtomVars]:
        """Its atoms from left to right; all of it holds if ``chosen`` is 1, and nothing is given if it is 0."""
        match expression:
            case Atom():
                return [self._atom(expression, chosen)]
            case Window(part):
                raise ValueError(f"not in its normal form: a window around {part}")
            case All(parts):
                return [each for part in parts for each in self.expression(part, chosen)]
            case Any(parts):
                choices = [self.binary() for _ in parts]
                self.bound({**dict.fromkeys(choices, 1.0), chosen: -1.0}, 0.0, 0.0)
                return [
                    each for part, choice in zip(parts, choices, strict=True) for each in self.expression(part, choice)
                ]
            case Order(parts, no_gap):
                found = [self.expression(part, chosen) for part in parts]
                boundaries = [self._before(left, right, no_gap=no_gap) for left, right in pairwise(found)]
                for boundary, following in pairwise(boundaries):  # also where what lies between them is given nothing
                    for one, other in zip(boundary, following, strict=True):
                        self.bound({one: 1.0, other: -1.0}, low=0.0)
                return [each for part in found for each in part]

    def _atom(self, atom: Atom, chosen: int) -> _AtomVars:
        """(2), (3), (5), (6) and leases."""
        first = 0 if atom.start is None else max(0, -(-(atom.start - self.now) // self.quantum))
        last = self.slots if atom.finish is None else min(self.slots, (atom.finish - self.now) // self.quantum)
        slots = range(first, max(first, last)) if atom.work else range(0)
        height = {slot: self.integer(atom.parallelism) for slot in slots}
        busy = {slot: self.binary() for slot in slots}
        one = _AtomVars(atom, height, busy)
        self.atoms.append(one)
        lease = -(-atom.lease // self.quantum)
        given = dict.fromkeys(height.values(), float(self.quantum))
        self.bound({**given, chosen: -float(atom.work)}, low=0.0)
        # Exactly the work, or what leases and gangs need above it: less than what can be given at once.
        self.bound({**given, chosen: -float(atom.work + atom.gang * lease * self.quantum - 1)}, high=0.0)
        for slot in slots:
            self.bound({height[slot]: 1.0, busy[slot]: -float(atom.parallelism)}, high=0.0)
            self.bound({height[slot]: 1.0, busy[slot]: -float(atom.gang)}, low=0.0)
            self.bound({busy[slot]: 1.0, chosen: -1.0}, high=0.0)
        self._changes(one, lease)
        return one

    def _changes(self, one: _AtomVars, lease: int) -> None:
        """Bundles that come in each slot: they cost (the y of (8), (9)), and stay for the lease."""
        came: dict[int, int] = {}
        scale = _CHANGES / (len(one.height) * one.atom.parallelism or 1)
        for slot, height in one.height.items():
            came[slot] = self.integer(one.atom.parallelism, cost=scale)
            before = {one.height[slot - 1]: -1.0} if slot - 1 in one.height else {}
            self.bound({height: 1.0, came[slot]: -1.0, **before}, high=0.0)
            within = {came[each]: -1.0 for each in range(slot - lease + 1, slot + 1) if each in came}
            self.bound({height: 1.0, **within}, low=0.0)
            if slot + lease - 1 not in one.height:  # it could not stay
                self.bound({came[slot]: 1.0}, high=0.0)

    def _before(self, left: list[_AtomVars], right: list[_AtomVars], *, no_gap: bool) -> list[int]:
        """(12)–(17): a boundary, before which only the one is given something, and behind which only the other.

        Whether each slot lies behind it.
        """
        behind = [self.binary() for _ in range(self.slots)]
        for slot in range(self.slots - 1):
            self.bound({behind[slot]: 1.0, behind[slot + 1]: -1.0}, high=0.0)
        for one in left:
            for slot, busy in one.busy.items():
                self.bound({busy: 1.0, behind[slot]: 1.0}, high=1.0)
        for one in right:
            for slot, busy in one.busy.items():
                self.bound({busy: 1.0, behind[slot]: -1.0}, high=0.0)
        if no_gap and any(one.atom.work for one in left) and any(one.atom.work for one in right):
            for slot in range(self.slots):
                begins = {behind[slot]: -1.0} | ({behind[slot - 1]: 1.0} if slot else {})
                last = {one.busy[slot - 1]: 1.0 for one in left if slot - 1 in one.busy}
                first = {one.busy[slot]: 1.0 for one in right if slot in one.busy}
                self.bound({**last, **begins}, low=0.0)
                self.bound({**first, **begins}, low=0.0)
        return behind

    def capacity(self, plan: Plan) -> None:
        """(1), in every dimension, of what is free in a whole slot."""
        for slot in range(self.slots):
            begins = self.now + slot * self.quantum
            free = plan.free.lowest(begins, begins + self.quantum)
            for index, amount in enumerate(free):
                terms = {
                    one.height[slot]: one.atom.bundle.amounts[index]
                    for one in self.atoms
                    if slot in one.height and one.atom.bundle.amounts[index]
                }
                if terms:
                    # Memory in bytes beside cores would be more than a solver's tolerance can tell apart.
                    scale = max(terms.values())
                    self.bound({each: value / scale for each, value in terms.items()}, high=max(0.0, amount) / scale)

    # ------------------------------------------------------------ the solver

    def solved(self, time_limit_s: float) -> tuple[npt.NDArray[np.float64] | None, bool]:
        """Values of all variables, and whether nothing better exists."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        counts = [len(terms) for terms, _, _ in self._rows]
        columns = [column for terms, _, _ in self._rows for column in terms]
        values = [value for terms, _, _ in self._rows for value in terms.values()]
        matrix = csr_array((values, columns, np.cumsum([0, *counts])), shape=(len(self._rows), len(self._cost)))
        found = milp(
            c=np.array(self._cost),
            integrality=np.ones(len(self._cost)),
            bounds=Bounds(0, np.array(self._upper)),
            constraints=LinearConstraint(
                matrix, [low for _, low, _ in self._rows], [high for _, _, high in self._rows]
            ),
            options={"time_limit": time_limit_s},
        )
        return (None if found.x is None else np.round(found.x)), found.status == 0

    def placed(self, atoms: list[_AtomVars], x: npt.NDArray[np.float64]) -> Placed:
        """What the values say of a request's atoms; slots of one height are one piece."""
        placed: Placed = []
        for one in atoms:
            pieces: list[Piece] = []
            for slot, variable in one.height.items():
                begins = self.now + slot * self.quantum
                number = int(x[variable])
                if pieces and pieces[-1].finish == begins and pieces[-1].number == number:
                    pieces[-1] = pieces[-1]._replace(finish=begins + self.quantum)
                elif number:
                    pieces.append(Piece(begins, begins + self.quantum, one.atom.bundle, number))
            placed.append(pieces)
        return placed
