"""PURE. The plan: what is promised when, in run-length form, of a capacity that changes over time (Rayon §5.2).

Every dimension counts. Steps are whole numbers from 0 on; behind the last change everything stays as it is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from master.reservations.rdl import Bundle

#: Cores, disk bytes/s, network bytes/s, bytes of memory, as :attr:`Bundle.amounts`.
Vector = tuple[float, float, float, float]
#: Fractions of cores add up with errors of this size; all else is whole.
EPSILON = 1e-6


class Piece(NamedTuple):
    """So many bundles in the steps [start, finish)."""

    start: int
    finish: int
    bundle: Bundle
    number: int


class Steps:
    """Amounts over time, one run for each stretch of steps in which nothing changes; a column for each resource."""

    def __init__(self, amounts: Vector) -> None:
        #: Rising, from 0; run i holds until start i + 1.
        self.starts: list[int] = [0]
        self.columns: tuple[list[float], ...] = tuple([float(amount)] for amount in amounts)

    @classmethod
    def of(cls, starts: Sequence[int], columns: Iterable[Sequence[float]]) -> Steps:
        """Return amounts from given steps on, a column for each resource; nothing before the first of them."""
        made = cls((0.0, 0.0, 0.0, 0.0))
        lead = [] if starts[0] == 0 else [0]
        made.starts = [*lead, *starts]
        made.columns = tuple([*map(float, lead), *column] for column in columns)
        return made

    def times(self, factor: float) -> Steps:
        """Return the same, each amount so many times."""
        made = Steps((0.0, 0.0, 0.0, 0.0))
        made.starts = self.starts[:]
        made.columns = tuple([factor * amount for amount in column] for column in self.columns)
        return made

    @property
    def rows(self) -> list[list[float]]:
        """The amounts of each run."""
        return [list(row) for row in zip(*self.columns, strict=True)]

    def at(self, step: int) -> list[float]:
        """What holds in a step."""
        index = bisect_right(self.starts, step) - 1
        return [column[index] for column in self.columns]

    def add(self, start: int, finish: int | None, amounts: Sequence[float]) -> None:
        """Add amounts in [start, finish), or from ``start`` on."""
        first = self._cut(start)
        last = len(self.starts) if finish is None else self._cut(finish)
        for column, amount in zip(self.columns, amounts, strict=True):
            if amount:
                column[first:last] = [before + amount for before in column[first:last]]
        self._join(last)
        self._join(first)

    def lowest(self, start: int, finish: int) -> list[float]:
        """The least of each amount in [start, finish)."""
        first, last = bisect_right(self.starts, start) - 1, bisect_right(self.starts, finish - 1)
        return [min(column[first:last]) for column in self.columns]

    def span(self, start: int, finish: int) -> tuple[int, int]:
        """Return the range of the runs that reach into [start, finish)."""
        return bisect_right(self.starts, start) - 1, bisect_left(self.starts, finish)

    def between(self, start: int, finish: int) -> Iterator[tuple[int, int, list[float]]]:
        """Yield (from, to, amounts) of each run, cut to [start, finish)."""
        a, b = self.span(start, finish)
        for index in range(a, b):
            end = self.starts[index + 1] if index + 1 < b else finish
            yield max(start, self.starts[index]), end, [column[index] for column in self.columns]

    def forget(self, before: int) -> None:
        """Have nothing in the steps before one."""
        index = self._cut(before)
        del self.starts[1:index]
        for column in self.columns:
            column[0:index] = [0.0] if index else []
        self._join(1)

    def runs(self, since: int = 0) -> Iterator[tuple[int, int | None, list[float]]]:
        """(from, to, amounts) of those that hold in ``since`` or later; the last one has no end."""
        for index in range(bisect_right(self.starts, since) - 1, len(self.starts)):
            finish = self.starts[index + 1] if index + 1 < len(self.starts) else None
            yield self.starts[index], finish, [column[index] for column in self.columns]

    def _cut(self, step: int) -> int:
        """The run that begins at a step, made if it is not there."""
        index = bisect_right(self.starts, step)
        if self.starts[index - 1] == step:
            return index - 1
        self.starts.insert(index, step)
        for column in self.columns:
            column.insert(index, column[index - 1])
        return index

    def _join(self, index: int) -> None:
        """One run where two say the same. (Fractions that differ by rounding stay apart, and do no harm.)"""
        if not 0 < index < len(self.starts):
            return
        for column in self.columns:
            if column[index - 1] != column[index]:
                return
        del self.starts[index]
        for column in self.columns:
            del column[index]


class Plan:
    """Who is promised what. It keeps what it is told to: that nothing exceeds the capacity is the planners' affair."""

    def __init__(self, capacity: Bundle) -> None:
        self.capacity = Steps(capacity.amounts)
        self.free = Steps(capacity.amounts)
        #: Another number for each change of what is promised.
        self.version = 0
        #: The same of the capacity.
        self.capacity_version = 0
        #: What planners may take beside what is free, while :meth:`limited`.
        self.limit: Steps | None = None
        self._pieces: dict[str, tuple[Piece, ...]] = {}

    def __contains__(self, reservation: object) -> bool:
        return reservation in self._pieces

    def reservations(self) -> Mapping[str, tuple[Piece, ...]]:
        """Reservation → what it is promised, in the order in which they came."""
        return self._pieces

    def add(self, reservation: str, pieces: Iterable[Piece]) -> None:
        """Promise it.

        Raises:
            KeyError: it is promised something already.
        """
        if reservation in self._pieces:
            raise KeyError(f"{reservation} is in the plan")
        self._pieces[reservation] = _in_time(pieces)
        self.version += 1
        for piece in self._pieces[reservation]:
            self.take(piece)

    def add_taken(self, reservation: str, pieces: Iterable[Piece]) -> None:
        """As :meth:`add`, of what a planner has taken already."""
        if reservation in self._pieces:
            raise KeyError(f"{reservation} is in the plan")
        self._pieces[reservation] = _in_time(pieces)
        self.version += 1

    def remove(self, reservation: str) -> tuple[Piece, ...]:
        """Promise it no longer; what it was promised.

        Raises:
            KeyError: it is not in the plan.
        """
        pieces = self._pieces.pop(reservation)
        self.version += 1
        for piece in pieces:
            self.give_back(piece)
        return pieces

    def change(self, reservation: str, pieces: Iterable[Piece]) -> None:
        """Promise something else instead; it keeps its place among the others.

        Raises:
            KeyError: it is not in the plan.
        """
        for piece in self._pieces[reservation]:
            self.give_back(piece)
        self._pieces[reservation] = _in_time(pieces)
        self.version += 1
        for piece in self._pieces[reservation]:
            self.take(piece)

    def set_capacity(self, since: int, capacity: Bundle, until: int | None = None) -> None:
        """The cluster has so much in [since, until), or from ``since`` on; what is promised stays promised."""
        changes = Steps((0.0, 0.0, 0.0, 0.0))
        self.capacity_version += 1
        for start, finish, row in self.capacity.runs():
            first, end = max(start, since), _earlier(finish, until)
            if end is None or first < end:
                changes.add(first, end, [new - old for new, old in zip(capacity.amounts, row, strict=True)])
        for start, finish, change in changes.runs():
            self.capacity.add(start, finish, change)
            self.free.add(start, finish, change)

    def promised(self, step: int) -> dict[str, Vector]:
        """Reservation → what it is promised in a step; those that are promised nothing then are left out."""
        found: dict[str, Vector] = {}
        for reservation, pieces in self._pieces.items():
            now = [piece for piece in pieces if piece.start <= step < piece.finish]
            if now:
                cores, disk, network, memory = (
                    sum(piece.number * piece.bundle.amounts[index] for piece in now) for index in range(4)
                )
                found[reservation] = (cores, disk, network, memory)
        return found

    def overcommitted(self, since: int = 0, until: int | None = None) -> int | None:
        """The first step in [since, until), or from ``since`` on, in which more is promised than there is."""
        for start, _, row in self.free.runs(since):
            if until is not None and start >= until:
                return None
            if min(row) < -EPSILON:
                return max(start, since)
        return None

    @contextmanager
    def limited(self, limit: Steps | None) -> Iterator[None]:
        """Within, planners may take no more than that, and what they take counts there, too."""
        self.limit = limit
        try:
            yield
        finally:
            self.limit = None

    def lowest(self, start: int, finish: int) -> list[float]:
        """Return the least of each amount in [start, finish) that a planner may take."""
        free = self.free.lowest(start, finish)
        return free if self.limit is None else list(map(min, free, self.limit.lowest(start, finish)))

    def take(self, piece: Piece) -> None:
        """Count a piece as promised, whoever it is for: a planner's tries."""
        amounts = [-piece.number * amount for amount in piece.bundle.amounts]
        self.free.add(piece.start, piece.finish, amounts)
        if self.limit is not None:
            self.limit.add(piece.start, piece.finish, amounts)

    def give_back(self, piece: Piece) -> None:
        """The contrary."""
        amounts = [piece.number * amount for amount in piece.bundle.amounts]
        self.free.add(piece.start, piece.finish, amounts)
        if self.limit is not None:
            self.limit.add(piece.start, piece.finish, amounts)


def _in_time(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    return tuple(sorted(pieces, key=lambda piece: (piece.start, piece.finish)))


def _earlier(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)
