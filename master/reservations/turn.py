"""PURE. The promise for one occurrence of a reservation."""

from __future__ import annotations

from dataclasses import dataclass

from master.reservations.gree import Placed
from master.reservations.plan import Piece
from master.reservations.rdl import Expression


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """The promise for one occurrence of a reservation; ``key`` is its name in the plan.

    ``placed`` has pieces for each atom of ``expression``, which is in its normal form.
    """

    key: str
    expression: Expression
    placed: Placed

    @property
    def pieces(self) -> list[Piece]:
        """Return all its pieces."""
        return [piece for pieces in self.placed for piece in pieces]

    @property
    def ends(self) -> int:
        """Return the step from which on it has no pieces."""
        return max((piece.finish for piece in self.pieces), default=0)

    def holds(self, step: int) -> bool:
        """Return whether it has a promise in that step."""
        return any(piece.start <= step < piece.finish for piece in self.pieces)
