"""PURE. How many bundles fit in each run of a plan; a run is an interval of steps with equal free capacity."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from master.reservations.plan import EPSILON, Piece, Steps
from master.reservations.rdl import Atom

#: Number of runs of the plan examined first.
_LOOK = 32


def from_edge(first: int, last: int, *, early: bool) -> Iterator[tuple[int, int]]:
    """Split [first, last) from the edge on into growing parts: most searches end in the first."""
    size = _LOOK
    while first < last:
        if early:
            yield first, min(first + size, last)
            first += size
        else:
            yield max(first, last - size), last
            last -= size
        size *= 2


def rooms_in_runs(needs: list[tuple[list[float], float]], first: int, last: int, most: float) -> list[float]:
    """Return the number of bundles that fit in each run, as a quotient: fractions of bundles do no harm."""
    rooms = [most] * (last - first)
    for column, amount in needs:
        bundles = [(free + EPSILON) / amount for free in column[first:last]]
        # Planning spends most time here; calls of min() would double it.
        rooms = [a if a < b else b for a, b in zip(rooms, bundles, strict=True)]  # noqa: FURB136
    return rooms


def limited(limit: Steps, atom: Atom, marks: list[int], rooms: list[float]) -> tuple[list[int], list[float]]:
    """Cut the runs between ``marks`` where the limit changes, and apply its bounds."""
    first, last = limit.span(marks[0], marks[-1])
    needs = [(limit.columns[index], float(amount)) for index, amount in enumerate(atom.bundle.amounts) if amount]
    others = rooms_in_runs(needs, first, last, float(atom.parallelism))
    changes = limit.starts[first + 1 : last]
    if changes != marks[1:-1]:
        cut = sorted({*marks, *changes})
        rooms = [rooms[bisect_right(marks, mark) - 1] for mark in cut[:-1]]
        begins = [marks[0], *changes]
        others = [others[bisect_right(begins, mark) - 1] for mark in cut[:-1]]
        marks = cut
    return marks, list(map(min, rooms, others))


def within_own_limit(
    own: list[Piece], marks: list[int], rooms: list[float], most: int
) -> tuple[list[int], list[float]]:
    """Cut the runs between ``marks`` at the atom's own pieces; together they are at most ``most`` bundles at once."""
    begins, ends = marks[0], marks[-1]
    changes: dict[int, int] = {}
    for piece in own:
        start, finish = max(piece.start, begins), min(piece.finish, ends)
        changes[start] = changes.get(start, 0) + piece.number
        changes[finish] = changes.get(finish, 0) - piece.number
    room_from = dict(zip(marks, rooms, strict=False))
    cut = sorted({*marks, *changes})
    room, left, found = 0.0, float(most), list[float]()
    for mark in cut[:-1]:
        room, left = room_from.get(mark, room), left - changes.get(mark, 0)
        found.append(min(room, left))
    return cut, found
