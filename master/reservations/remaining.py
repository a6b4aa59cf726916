"""PURE. The rest of a request that has begun: the work without a promised time in the past."""

from __future__ import annotations

from collections.abc import Iterator

from master.reservations.gree import Placed
from master.reservations.plan import Piece
from master.reservations.rdl import All, Any, Atom, Expression, Order, Window, atoms_of, normalized


def remaining(expression: Expression, placed: Placed, now: int) -> Expression:
    """Return the rest in normal form. Of alternatives, the chosen one is kept once part of it was given.

    Bundles given before ``now`` count as work, used or not: they were promised.
    """
    return normalized(_left(expression, iter(placed), now))


def _left(expression: Expression, placed: Iterator[list[Piece]], now: int) -> Expression:
    match expression:
        case Atom(bundle, gang, parallelism, lease, work, start, finish):
            done = sum(max(0, min(piece.finish, now) - piece.start) * piece.number for piece in next(placed))
            return Atom(bundle, gang, parallelism, lease, max(0, work - done), max(start or 0, now), finish)
        case Window(part, start, finish):
            return Window(_left(part, placed, now), start, finish)
        case Any(parts):
            return _chosen(parts, placed, now)
        case All(parts):
            return All(tuple(_left(part, placed, now) for part in parts))
        case Order(parts, no_gap):
            return Order(tuple(_left(part, placed, now) for part in parts), no_gap)


def _chosen(parts: tuple[Expression, ...], placed: Iterator[list[Piece]], now: int) -> Expression:
    """Return the chosen alternative; while nothing of it was given, all alternatives remain."""
    given = [[next(placed) for _ in atoms_of(part)] for part in parts]
    for part, pieces in zip(parts, given, strict=True):
        if any(piece.start < now for each in pieces for piece in each):
            return _left(part, iter(pieces), now)
    return Any(tuple(_left(part, iter(pieces), now) for part, pieces in zip(parts, given, strict=True)))
