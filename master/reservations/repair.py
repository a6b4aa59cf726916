"""PURE. Turns cut by a loss of capacity, and the parts that can be given back when capacity returns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from master.reservations.gree import Placed
from master.reservations.plan import EPSILON, Piece, Plan
from master.reservations.rdl import Expression
from master.reservations.remaining import remaining
from master.reservations.turn import Turn


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A turn without a promise from step ``since`` on, because the cluster had less than was promised."""

    turn: Turn
    since: int

    def left(self) -> Expression:
        """Return the part of the request that was not given before the cut."""
        return remaining(self.turn.expression, self.turn.placed, self.since)

    def missed(self, now: int) -> bool:
        """Return whether part of the turn's promised time has passed since the cut."""
        return any(_clip(piece, self.since, now) is not None for piece in self.turn.pieces)

    def coming(self, now: int) -> list[Piece]:
        """Return the turn's pieces from ``now`` on."""
        return after(self.turn.pieces, now)

    def rest(self, now: int) -> Placed:
        """Return the turn's pieces without those missed between the cut and ``now``."""
        found: Placed = []
        for pieces in self.turn.placed:
            parts = [part for piece in pieces for part in (_clip(piece, 0, self.since), _clip(piece, now, None))]
            found.append([part for part in parts if part is not None])
        return found


def after(pieces: Iterable[Piece], now: int) -> list[Piece]:
    """Return the parts of pieces from step ``now`` on."""
    return [clipped for piece in pieces if (clipped := _clip(piece, now, None)) is not None]


def fits(plan: Plan, pieces: list[Piece]) -> bool:
    """Return whether the plan has room for all pieces together; the plan stays as it is."""
    taken: list[Piece] = []
    for piece in pieces:
        lowest = plan.free.lowest(piece.start, piece.finish)
        needs = [piece.number * amount for amount in piece.bundle.amounts]
        if any(need and need > free + EPSILON for need, free in zip(needs, lowest, strict=True)):
            break
        plan.take(piece)
        taken.append(piece)
    for piece in taken:
        plan.give_back(piece)
    return len(taken) == len(pieces)


def _clip(piece: Piece, start: int, finish: int | None) -> Piece | None:
    """Return the part of a piece in [start, finish); None where it is empty."""
    first = max(piece.start, start)
    last = piece.finish if finish is None else min(piece.finish, finish)
    return Piece(first, last, piece.bundle, piece.number) if first < last else None
