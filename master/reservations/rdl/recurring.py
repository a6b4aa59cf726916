"""The turns of a recurring request: their expressions, and which of them lie in a stretch of time.

Periods are counted from the request's base. Windows belong to the period in which the first of them begins, and move
along with later periods; an expression without a window lies within its own period.
"""

from __future__ import annotations

from msgspec.structs import replace

from master.reservations.rdl.expressions import All, Any, Atom, Expression, Order, Request, Window, atoms_of
from master.reservations.rdl.normal import normalized


class Recurrence:
    """The turns of one request, whose ``every`` is not None. A turn's number is that of its period."""

    def __init__(self, request: Request) -> None:
        assert request.every is not None
        self._every = request.every
        self._until = request.until
        self._expression = normalized(request.expression)
        atoms = list(atoms_of(self._expression))
        starts = [atom.start for atom in atoms if atom.start is not None]
        self._base = min([request.base, *starts])
        self._first = (min(starts) - self._base) // self._every if starts else 0
        free = self._base + self._first * self._every
        self._begins = min(free if atom.start is None else atom.start for atom in atoms)
        self._ends = max(free + self._every if atom.finish is None else atom.finish for atom in atoms)

    def turn(self, number: int) -> Expression:
        """Return the expression of a turn, in its normal form."""
        period = self._base + number * self._every
        return _moved(self._expression, (number - self._first) * self._every, period, period + self._every)

    def begins(self, number: int) -> int:
        """Return the first step of a turn's time."""
        return self._begins + (number - self._first) * self._every

    def ends(self, number: int) -> int:
        """Return the step after a turn's time."""
        return self._ends + (number - self._first) * self._every

    def turns(self, now: int, before: int) -> range:
        """Return the turns that begin before step ``before`` and before the recurrence ends, and are not over
        ``now``.
        """
        last = before if self._until is None else min(before, self._until)
        first = self._first + max(0, (now - self._ends) // self._every + 1)
        return range(first, max(first, self._first - (self._begins - last) // self._every))


def _moved(expression: Expression, by: int, first: int, last: int) -> Expression:
    """Return the expression with its windows moved; atoms without a window lie in [``first``, ``last``)."""
    match expression:
        case Atom(start=start, finish=finish):
            begins = first if start is None else start + by
            ends = last if finish is None else finish + by
            return replace(expression, start=begins, finish=ends)
        case Window(part, start, finish):
            return Window(_moved(part, by, first, last), start + by, finish + by)
        case Any(parts) | All(parts) | Order(parts):
            return replace(expression, parts=tuple(_moved(part, by, first, last) for part in parts))
