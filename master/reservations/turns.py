"""PURE. The promise for one occurrence of a reservation, the rest of it once it has begun, and what a loss of capacity
cuts from it and can be given back when capacity returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from msgspec.structs import replace

from master.reservations.gree import Placed
from master.reservations.plan import EPSILON, Piece, Plan, clipped
from master.reservations.rdl import All, Any, Atom, Expression, Order, Window, atoms_of, infeasible, normalized


@dataclass(frozen=True, slots=True)
class Turn:
    """The promise for one occurrence of a reservation, as it is also stored; ``key`` is its name in the plan.

    ``placed`` has pieces for each atom of ``expression``, which is in its normal form.
    """

    key: str
    expression: Expression
    placed: Placed

    @property
    def pieces(self) -> list[Piece]:
        """Return all its pieces."""
        return [*chain.from_iterable(self.placed)]

    @property
    def ends(self) -> int:
        """Return the step from which on it has no pieces."""
        return max((piece.finish for piece in self.pieces), default=0)

    def holds(self, step: int) -> bool:
        """Return whether it has a promise in that step."""
        return any(piece.start <= step < piece.finish for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Cut:
    """A turn without a promise from step ``since`` on, because the cluster had less than was promised; as stored."""

    turn: Turn
    since: int

    def left(self) -> Expression:
        """Return the part of the request that was not given before the cut."""
        return remaining(self.turn.expression, self.turn.placed, self.since)

    def missed(self, now: int) -> bool:
        """Return whether part of the turn's promised time has passed since the cut."""
        return bool(clipped(self.turn.pieces, self.since, now))

    def over(self, now: int) -> bool:
        """Return whether it can no longer be promised again."""
        return max(self.turn.ends, self.since) <= now and bool(infeasible(self.left(), now))

    def rest(self, now: int) -> Placed:
        """Return the turn's pieces without those missed between the cut and ``now``."""
        return [[*clipped(pieces, 0, self.since), *clipped(pieces, now)] for pieces in self.turn.placed]


def remaining(expression: Expression, placed: Placed, now: int) -> Expression:
    """Return the work without a promised time before ``now``, in normal form. Of alternatives, the chosen one is kept
    once part of it was given.

    Bundles given before ``now`` count as work, used or not: they were promised.
    """
    return normalized(_left(expression, iter(placed), now))


def _left(expression: Expression, placed: Iterator[list[Piece]], now: int) -> Expression:
    match expression:
        case Atom(work=work, start=start):
            done = sum(piece.work for piece in clipped(next(placed), 0, now))
            return replace(expression, work=max(0, work - done), start=max(start or 0, now))
        case Window(part):
            return replace(expression, part=_left(part, placed, now))
        case Any(parts):
            return _chosen(parts, placed, now)
        case All(parts) | Order(parts):
            return replace(expression, parts=tuple(_left(part, placed, now) for part in parts))


def _chosen(parts: tuple[Expression, ...], placed: Iterator[list[Piece]], now: int) -> Expression:
    """Return the chosen alternative; while nothing of it was given, all alternatives remain."""
    given = [[next(placed) for _ in atoms_of(part)] for part in parts]
    for part, pieces in zip(parts, given, strict=True):
        if any(piece.start < now for piece in chain.from_iterable(pieces)):
            return _left(part, iter(pieces), now)
    return Any(tuple(_left(part, iter(pieces), now) for part, pieces in zip(parts, given, strict=True)))


def fits(plan: Plan, pieces: list[Piece]) -> bool:
    """Return whether the plan has room for all pieces together; the plan stays as it is."""
    taken: list[Piece] = []
    for piece in pieces:
        lowest = plan.free.lowest(piece.start, piece.finish)
        if any(need and need > free + EPSILON for need, free in zip(piece.amounts, lowest, strict=True)):
            break
        plan.take(piece)
        taken.append(piece)
    for piece in taken:
        plan.give_back(piece)
    return len(taken) == len(pieces)
