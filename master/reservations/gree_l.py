"""PURE. GREE-L (Rayon §4.2, Algorithm 1): as flat as possible, each part of an order in an interval of its own.

Flat allocations cause less preemption from one step to the next; they leave less room near the deadline, so fewer
requests are accepted.
"""

from __future__ import annotations

from master.reservations.effort import RUN
from master.reservations.gree import Gree, Placed
from master.reservations.plan import Piece, Plan
from master.reservations.rdl import All, Any, Atom, Expression, Order, Window, bounds_of
from master.reservations.shapes import shapes, steps_of

#: Steps [near, far) seen from the edge, and the number of bundles that fit.
_Run = tuple[int, int, int]


class GreeL(Gree):
    """``fallback``: expressions that do not fit into their interval are placed as in GREE; otherwise the request is
    rejected.
    """

    def __init__(self, plan: Plan, *, early: bool = False, fallback: bool = True) -> None:
        super().__init__(plan, early=early)
        self._fallback = fallback
        self._tall = False

    def _next(self, line: tuple[Expression, ...], index: int, start: int, finish: int) -> Placed | None:
        """guessIntervals: in proportion to the least time that each part takes, and no less than that."""
        part = line[index]
        own, left = _least_steps(part), sum(map(_least_steps, line[index + 1 :]))
        low, high = bounds_of(part, start, finish)
        share = max(own, (high - low) * own // max(1, own + left))
        placed = self._place(part, *((low, min(high, low + share)) if self._early else (max(low, high - share), high)))
        if placed is None and self._fallback and not self._tall:
            self._tall = True
            placed = self._place(part, low, high)
            self._tall = False
        return placed

    def _blocks(self, atom: Atom, start: int, finish: int) -> list[Piece] | None:
        """Place an atom at a constant height if that fits; otherwise as low as possible where there is room."""
        length = finish - start
        if self._tall or not atom.work or length < atom.lease:
            return super()._blocks(atom, start, finish)
        number = max(atom.gang, -(-atom.work // length))
        flat = shapes(atom.work, range(number, atom.parallelism + 1), atom.gang, atom.lease)
        best = next((each for each in flat if steps_of(each) <= length), [])
        pieces = self._pieces(atom, start if self._early else -finish, best)
        if pieces and all(map(self._fits, pieces)):
            for piece in pieces:
                self._plan.take(piece)
            return pieces
        if atom.lease == 1 and (pieces := self._level(atom, start, finish)):
            for each in pieces:
                self._plan.take(each)
            return pieces
        return super()._blocks(atom, start, finish) if self._fallback else None

    def _fits(self, piece: Piece) -> bool:
        lowest = self._plan.lowest(piece.start, piece.finish)
        return all(amount <= free + 1e-6 for amount, free in zip(piece.amounts, lowest, strict=True))

    def _level(self, atom: Atom, start: int, finish: int) -> list[Piece]:
        """Place at the lowest height that completes the work, cut off where there is less room; for leases of one step.

        If even the gang's height would give more than the work, use only the nearest steps needed.
        """
        runs = [
            (near, far, min(int(room), atom.parallelism))
            for near, far, room in self._runs(atom, start, finish, [])
            if room >= atom.gang
        ]
        gangs, rest = divmod(atom.work, atom.gang)
        self.effort.spend(RUN * len(runs) * atom.parallelism.bit_length())
        nearest = _first_steps(runs, gangs)
        if rest and _given(nearest, atom.parallelism) < atom.work:
            nearest = _first_steps(runs, gangs + 1)
        if _given(nearest, atom.parallelism) < atom.work:
            return []
        low, high = atom.gang, atom.parallelism
        while low < high:
            middle = (low + high) // 2
            if _given(nearest, middle) >= atom.work:
                high = middle
            else:
                low = middle + 1
        return self._cut(atom, nearest, low)

    def _cut(self, atom: Atom, runs: list[_Run], level: int) -> list[Piece]:
        """At that height, but one less farther from the edge as far as the work allows."""
        spare = _given(runs, level) - atom.work
        pieces: list[Piece] = []
        for near, far, room in reversed(runs):  # from the far end on
            number = min(room, level)
            lower = min(far - near, spare) if number == level > atom.gang else 0
            spare -= lower
            for begins, steps, bundles in ((far - lower, lower, number - 1), (near, far - near - lower, number)):
                if steps:
                    pieces += self._pieces(atom, begins, [(steps, bundles)])
        return pieces


def _given(runs: list[_Run], level: int) -> int:
    """Return the bundle-steps of runs at a height."""
    return sum((far - near) * min(room, level) for near, far, room in runs)


def _first_steps(runs: list[_Run], steps: int) -> list[_Run]:
    """Return the first runs with this number of steps in all."""
    found = list[_Run]()
    for near, far, room in runs:
        if steps > 0:
            found.append((near, min(far, near + steps), room))
        steps -= far - near
    return found


def _least_steps(expression: Expression) -> int:
    """Return the least time that it can take; 0 for an empty atom."""
    match expression:
        case Atom(parallelism=parallelism, lease=lease, work=work):
            return max(lease, -(-work // parallelism)) if work else 0
        case Window(part):
            return _least_steps(part)
        case Any(parts):
            return min(map(_least_steps, parts))
        case All(parts):
            return max(map(_least_steps, parts))
        case Order(parts):
            return sum(map(_least_steps, parts))
