"""Planning many requests at once as a mixed-integer linear program (Rayon §4.1), solved by HiGHS.

It finds the best plan that the language allows, for as many requests as a solver can handle: tens of orders, hundreds
of atoms. Time is cut into slots of ``quantum`` steps. Within them the model has the paper's constraints (1)–(17):
capacity, parallelism, demand, gangs, leases, choices, orders, overflow instead of infeasibility, and least preemption.
Leases are those of the language (each bundle stays), not only those of rigid jobs, and an order has one boundary for
each pair instead of starts and finishes.

The best plan first accepts the most requests, and among those the most work; then it has the least preemption; then it
gives the least beyond the work. Acceptance is solved separately: next to it, the costs of preemption would fall below a
solver's tolerances.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from master.reservations.gree import Gree, Placed
from master.reservations.gree_l import GreeL
from master.reservations.measures import preemption, work_of
from master.reservations.plan import Piece, Plan
from master.reservations.rdl import All, Any, Atom, Expression, Order, Window, atoms_of

#: Cost of everything given beyond the work, relative to 1 for the smallest possible downward step.
_BEYOND = 0.1
#: Decimal places to which sums are compared.
_SAME = 9
#: The solver's tolerance of bounds.
_TOLERANCE = 1e-6
#: Shortest search time.
_LEAST_S = 0.1
_Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Solved:
    """``placed``: request → its pieces, for each atom; None where it is rejected.

    ``optimal``: proven to be the best; otherwise the best found in time, possibly by a greedy planner.
    """

    placed: Mapping[str, Placed | None]
    optimal: bool


def solve(
    plan: Plan,
    requests: Mapping[str, Expression],
    horizon: int,
    *,
    quantum: int = 1,
    time_limit_s: float = 60.0,
) -> Solved:
    """Place as many requests as possible in the steps [0, horizon) of the plan, which is unchanged.

    Expressions are in their normal form. The result is no worse than those of :class:`Gree` and :class:`GreeL`.
    """
    if not requests:
        return Solved({}, optimal=True)
    greedy = min(
        (_greedily(planner, plan, requests, horizon) for planner in (Gree(plan), GreeL(plan))),
        key=lambda placed: _cost(placed, requests, plan),
    )
    model = _Model(horizon // quantum, quantum)
    roots = {name: model.binary() for name in requests}
    trees = {name: model.expression(each, roots[name]) for name, each in requests.items()}
    model.capacity(plan)
    weights = {roots[name]: work_of(each) for name, each in requests.items()}
    known = {roots[name] for name, given in greedy.items() if given is not None}
    x, optimal = model.best(plan, weights, list(trees.values()), known, time_limit_s)
    if x is None:
        return Solved(greedy, optimal=False)
    placed = {name: model.placed(trees[name], x) if x[roots[name]] > 0.5 else None for name in requests}
    if _cost(greedy, requests, plan) < _cost(placed, requests, plan):
        return Solved(greedy, optimal=False)
    return Solved(placed, optimal)


def _greedily(planner: Gree, plan: Plan, requests: Mapping[str, Expression], horizon: int) -> dict[str, Placed | None]:
    """Return a greedy planner's placement of all requests, one after the other; the plan is unchanged."""
    placed: dict[str, Placed | None] = {}
    taken: list[Piece] = []
    for name, expression in requests.items():
        given = placed[name] = planner.place(expression, 0, horizon)
        for piece in chain.from_iterable(given or ()):
            plan.take(piece)
            taken.append(piece)
    for piece in taken:
        plan.give_back(piece)
    return placed


def _cost(
    placed: Mapping[str, Placed | None], requests: Mapping[str, Expression], plan: Plan
) -> tuple[int, float, float, int]:
    """Return a cost, less is better, in this order: accepted requests, accepted work, preemption, amount beyond the
    work.
    """
    accepted, work, preempted, beyond = 0, 0.0, 0.0, 0
    for name, given in placed.items():
        if given is not None:
            accepted, work = accepted + 1, work + work_of(requests[name])
            preempted += preemption(given, plan)
            for atom, pieces in zip(atoms_of(requests[name]), given, strict=True):
                if pieces:
                    beyond += sum(piece.work for piece in pieces) - atom.work
    return -accepted, -round(work, _SAME), round(preempted, _SAME), beyond


@dataclass(slots=True)
class _AtomVars:
    """The variables of one atom: its height in each slot, and whether it is given its work."""

    atom: Atom
    chosen: int
    height: dict[int, int]
    busy: dict[int, int]


@dataclass(slots=True)
class _Model:
    slots: int
    quantum: int
    atoms: list[_AtomVars] = field(default_factory=list)
    _upper: list[float] = field(default_factory=list)
    _whole: list[bool] = field(default_factory=list)
    _rows: list[tuple[dict[int, float], float, float]] = field(default_factory=list)

    # ------------------------------------------------------------ variables and constraints

    def variable(self, upper: float, *, whole: bool = True) -> int:
        """Add a variable with values from 0 to ``upper``."""
        self._upper.append(upper)
        self._whole.append(whole)
        return len(self._upper) - 1

    def binary(self) -> int:
        return self.variable(1.0)

    def bound(self, terms: Mapping[int, float], low: float = -np.inf, high: float = np.inf) -> None:
        """Require low ≤ Σ coefficient × variable ≤ high."""
        self._rows.append((dict(terms), low, high))

    # ------------------------------------------------------------ the language

    def expression(self, expression: Expression, chosen: int) -> list[_AtomVars]:
        """Return its atoms from left to right; all of it holds if ``chosen`` is 1, and nothing is given if it is 0."""
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
                for boundary, following in pairwise(boundaries):  # also where the part between them is given nothing
                    for one, other in zip(boundary, following, strict=True):
                        self.bound({one: 1.0, other: -1.0}, low=0.0)
                return [each for part in found for each in part]

    def _atom(self, atom: Atom, chosen: int) -> _AtomVars:
        """Add constraints (2), (3), (5), (6) and leases."""
        first = -(-(atom.start or 0) // self.quantum)
        last = self.slots if atom.finish is None else min(self.slots, atom.finish // self.quantum)
        slots = range(first, max(first, last)) if atom.work else range(0)
        height = {slot: self.variable(atom.parallelism) for slot in slots}
        busy = {slot: self.binary() for slot in slots}
        one = _AtomVars(atom, chosen, height, busy)
        self.atoms.append(one)
        lease = -(-atom.lease // self.quantum)
        given = dict.fromkeys(height.values(), float(self.quantum))
        self.bound({**given, chosen: -float(atom.work)}, low=0.0)
        # Exactly the work, or the excess required by leases and gangs, which is less than they give at once.
        self.bound({**given, chosen: -float(atom.work + atom.gang * lease * self.quantum - 1)}, high=0.0)
        for slot in slots:
            self.bound({height[slot]: 1.0, busy[slot]: -float(atom.parallelism)}, high=0.0)
            self.bound({height[slot]: 1.0, busy[slot]: -float(atom.gang)}, low=0.0)
            self.bound({busy[slot]: 1.0, chosen: -1.0}, high=0.0)
        self._changes(one, lease)
        return one

    def _changes(self, one: _AtomVars, lease: int) -> None:
        """Require that bundles arriving in each slot (the y of (8), (9)) stay for the lease."""
        came: dict[int, int] = {}
        for slot, height in one.height.items():
            came[slot] = self.variable(one.atom.parallelism)
            before = {one.height[slot - 1]: -1.0} if slot - 1 in one.height else {}
            self.bound({height: 1.0, came[slot]: -1.0, **before}, high=0.0)
            within = {came[each]: -1.0 for each in range(slot - lease + 1, slot + 1) if each in came}
            self.bound({height: 1.0, **within}, low=0.0)
            if slot + lease - 1 not in one.height:  # it could not stay for the lease
                self.bound({came[slot]: 1.0}, high=0.0)

    def _before(self, left: list[_AtomVars], right: list[_AtomVars], *, no_gap: bool) -> list[int]:
        """Add (12)–(17): a boundary with the left part before it and the right part after it.

        Return for each slot the variable that is 1 after the boundary.
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
        """Add (1), in every dimension, for the capacity that is free in a whole slot."""
        for slot in range(self.slots):
            begins = slot * self.quantum
            free = plan.free.lowest(begins, begins + self.quantum)
            for index, amount in enumerate(free):
                terms = {
                    one.height[slot]: one.atom.bundle.amounts[index]
                    for one in self.atoms
                    if slot in one.height and one.atom.bundle.amounts[index]
                }
                if terms:
                    # Memory in bytes next to cores would exceed the resolution of a solver's tolerance.
                    scale = max(terms.values())
                    self.bound({each: value / scale for each, value in terms.items()}, high=max(0.0, amount) / scale)

    # ------------------------------------------------------------ the best

    def best(
        self, plan: Plan, work: Mapping[int, float], trees: list[list[_AtomVars]], known: set[int], time_limit_s: float
    ) -> tuple[_Values | None, bool]:
        """Return the values of all variables, and whether they are proven optimal; None: none were found in time.

        ``work`` maps each request's accepting variable to its work; the requests of ``known`` fit together.
        """
        until, most, proven, accepted = time.monotonic() + time_limit_s, None, True, known
        total = sum(work.values()) + 1.0
        if len(known) < len(work):
            most, proven = self._solved({root: -1 - each / total for root, each in work.items()}, time_limit_s)
            found = known if most is None else {root for root in work if most[root] > 0.5}
            accepted = max(found, known, key=lambda roots: (len(roots), sum(work[root] for root in roots)))
        self.bound(dict.fromkeys(work, 1.0), low=len(accepted))
        share = sum(work[root] for root in accepted) / total
        self.bound({root: each / total for root, each in work.items()}, low=share - _TOLERANCE)
        cost = self._preemption(plan, trees) | self._beyond()
        least, optimal = self._solved(cost, max(_LEAST_S, until - time.monotonic()))
        return (most if least is None else least), proven and optimal

    def _preemption(self, plan: Plan, trees: list[list[_AtomVars]]) -> dict[int, float]:
        """Add, for each request and slot, the downward step of its promise: the largest share of the cluster in any
        dimension.

        Return variable → its cost, which is 1 for the smallest step that an atom can make.
        """
        marks = [plan.capacity.at(slot * self.quantum) for slot in range(self.slots + 1)]
        shares = (
            amount / has
            for one in self.atoms
            for capacity in marks
            for amount, has in zip(one.atom.bundle.amounts, capacity, strict=True)
            if amount and has
        )
        unit, costs = min(shares, default=1.0), dict[int, float]()
        for tree in trees:
            for slot in sorted({slot + 1 for one in tree for slot in one.height}):
                down = self.variable(np.inf, whole=False)
                costs[down] = 1.0
                for index, has in enumerate(marks[slot]):
                    terms = dict[int, float]()
                    for one in tree:
                        share = one.atom.bundle.amounts[index] / has / unit if has else 0.0
                        for at, sign in ((slot - 1, -1.0), (slot, 1.0)):
                            if share and at in one.height:
                                terms[one.height[at]] = sign * share
                    if terms:
                        self.bound({down: 1.0, **terms}, low=0.0)
        return costs

    def _beyond(self) -> dict[int, float]:
        """Return variable → its cost, at most :data:`_BEYOND` in sum for everything given beyond the work."""
        most = sum(one.atom.gang * (one.atom.lease + self.quantum) for one in self.atoms)
        costs = dict[int, float]()
        for one in self.atoms:
            costs |= dict.fromkeys(one.height.values(), _BEYOND / most * self.quantum)
            costs[one.chosen] = costs.get(one.chosen, 0.0) - _BEYOND / most * one.atom.work
        return costs

    def _solved(self, cost: Mapping[int, float], time_limit_s: float) -> tuple[_Values | None, bool]:
        """Return the values of all variables with the least cost, and whether that is proven."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        counts = [len(terms) for terms, _, _ in self._rows]
        columns = [column for terms, _, _ in self._rows for column in terms]
        values = [value for terms, _, _ in self._rows for value in terms.values()]
        matrix = csr_array((values, columns, np.cumsum([0, *counts])), shape=(len(self._rows), len(self._upper)))
        found = milp(
            c=np.array([cost.get(variable, 0.0) for variable in range(len(self._upper))]),
            integrality=np.array(self._whole, dtype=int),
            bounds=Bounds(0, np.array(self._upper)),
            constraints=LinearConstraint(
                matrix, [low for _, low, _ in self._rows], [high for _, _, high in self._rows]
            ),
            options={"time_limit": time_limit_s, "mip_rel_gap": 0.0},
        )
        return (None if found.x is None else np.round(found.x)), found.status == 0

    def placed(self, atoms: list[_AtomVars], x: npt.NDArray[np.float64]) -> Placed:
        """Return the placement of a request's atoms; adjacent slots of equal height form one piece."""
        placed: Placed = []
        for one in atoms:
            pieces: list[Piece] = []
            for slot, variable in one.height.items():
                begins = slot * self.quantum
                number = int(x[variable])
                if pieces and pieces[-1].finish == begins and pieces[-1].number == number:
                    pieces[-1] = pieces[-1]._replace(finish=begins + self.quantum)
                elif number:
                    pieces.append(Piece(begins, begins + self.quantum, number, one.atom.bundle))
            placed.append(pieces)
        return placed
