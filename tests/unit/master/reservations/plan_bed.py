"""A planner's allocation in the form that the checker of the language reads."""

from __future__ import annotations

from itertools import pairwise

from master.reservations.gree import Placed
from master.reservations.plan import Piece, Plan
from master.reservations.rdl import Bundle, Expression, atoms_of
from tests.unit.master.reservations.satisfied import unsatisfied

CORE = Bundle(cpu_cores=1.0)


def intervals(pieces: list[Piece]) -> list[tuple[int, int, int]]:
    """Pieces that may lie upon one another, as heights over time."""
    marks = sorted({each for piece in pieces for each in (piece.start, piece.finish)})
    found: list[tuple[int, int, int]] = []
    for start, finish in pairwise(marks):
        held = sum(piece.number for piece in pieces if piece.start <= start < piece.finish)
        if held and found and found[-1][1:] == (start, held):
            found[-1] = (found[-1][0], finish, held)
        elif held:
            found.append((start, finish, held))
    return found


def wrong(expression: Expression, placed: Placed, *, quantum: int = 1) -> str:
    """Return how the allocation differs from the request, or exceeds it; empty if it does not.

    A lease and a gang need more than the work: an excess below the least that an atom can be given at once.
    """
    for atom, pieces in zip(atoms_of(expression), placed, strict=True):
        unit = atom.gang * -(-atom.lease // quantum) * quantum
        if (work := sum((piece.finish - piece.start) * piece.number for piece in pieces)) >= atom.work + unit:
            return f"{work} bundle-steps, {atom.work} and less than {unit} more are asked for"
    return unsatisfied(expression, [intervals(pieces) for pieces in placed])


def flat(placed: Placed) -> list[Piece]:
    return [piece for pieces in placed for piece in pieces]


def rebuilt(plan: Plan, capacity: list[tuple[int, Bundle]]) -> Plan:
    """The same plan, made anew."""
    other = Plan(capacity[0][1])
    for since, bundle in capacity[1:]:
        other.set_capacity(since, bundle)
    for name, pieces in plan.reservations().items():
        other.add(name, pieces)
    return other
