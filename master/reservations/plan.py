"""PURE. The plan: promises over time, in run-length form, of a capacity that changes over time (Rayon §5.2).

Every dimension counts. Steps are whole numbers from 0 on; after the last change the amounts stay constant.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from master.reservations.rdl import Bundle
from penstock.model.resource_vector import NOTHING, ResourceVector

#: Tolerance for sums of fractions of cores; all other amounts are whole.
EPSILON = 1e-6


class Piece(NamedTuple):
    """``number`` bundles in the steps [start, finish)."""

    start: int
    finish: int
    number: int
    bundle: Bundle

    @property
    def amounts(self) -> list[float]:
        """Return what it takes in each of its steps, as :attr:`Bundle.amounts`."""
        return [self.number * amount for amount in self.bundle.amounts]

    @property
    def work(self) -> int:
        """Return its bundle-steps."""
        return (self.finish - self.start) * self.number


def clipped(pieces: Iterable[Piece], start: int, finish: int | None = None) -> list[Piece]:
    """Return the parts of pieces in [start, finish), or from ``start`` on."""
    found: list[Piece] = []
    for piece in pieces:
        first, last = max(piece.start, start), piece.finish if finish is None else min(piece.finish, finish)
        if first < last:
            found.append(piece._replace(start=first, finish=last))
    return found


class Steps:
    """Amounts over time, one run for each stretch of steps without a change; a column for each resource."""

    def __init__(self, amounts: ResourceVector = NOTHING) -> None:
        #: Rising, from 0; run i holds until start i + 1.
        self.starts: list[int] = [0]
        self.columns: tuple[list[float], ...] = tuple([float(amount)] for amount in amounts)

    @classmethod
    def sum_of(cls, pieces: Iterable[Piece]) -> Steps:
        """Return the sum of pieces over time."""
        made = cls()
        made.put(pieces)
        return made

    @classmethod
    def of(cls, starts: Sequence[int], columns: Iterable[Sequence[float]]) -> Steps:
        """Return amounts from given steps on, a column for each resource; 0 before the first step."""
        made = cls()
        lead = [] if starts[0] == 0 else [0]
        made.starts = [*lead, *starts]
        made.columns = tuple([*map(float, lead), *column] for column in columns)
        return made

    def times(self, factor: float) -> Steps:
        """Return the amounts multiplied by ``factor``."""
        made = Steps()
        made.starts = self.starts[:]
        made.columns = tuple([factor * amount for amount in column] for column in self.columns)
        return made

    @property
    def rows(self) -> list[list[float]]:
        """The amounts of each run."""
        return [list(row) for row in zip(*self.columns, strict=True)]

    def at(self, step: int) -> list[float]:
        """Return the amounts in a step."""
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

    def put(self, pieces: Iterable[Piece], sign: int = 1) -> None:
        """Add the amounts of pieces; ``sign`` -1: subtract them."""
        for piece in pieces:
            self.add(piece.start, piece.finish, [sign * amount for amount in piece.amounts])

    def lowest(self, start: int, finish: int) -> list[float]:
        """Return the least of each amount in [start, finish)."""
        first, last = bisect_right(self.starts, start) - 1, bisect_right(self.starts, finish - 1)
        return [min(column[first:last]) for column in self.columns]

    def highest(self, since: int) -> list[float]:
        """Return the most of each amount in ``since`` or later."""
        first = bisect_right(self.starts, since) - 1
        return [max(column[first:]) for column in self.columns]

    def span(self, start: int, finish: int) -> tuple[int, int]:
        """Return the range of the runs that overlap [start, finish)."""
        return bisect_right(self.starts, start) - 1, bisect_left(self.starts, finish)

    def between(self, start: int, finish: int) -> Iterator[tuple[int, int, list[float]]]:
        """Yield (from, to, amounts) of each run, cut to [start, finish)."""
        a, b = self.span(start, finish)
        for index in range(a, b):
            end = self.starts[index + 1] if index + 1 < b else finish
            yield max(start, self.starts[index]), end, [column[index] for column in self.columns]

    def clear_before(self, before: int) -> None:
        """Set all amounts before a step to 0."""
        index = self._cut(before)
        del self.starts[1:index]
        for column in self.columns:
            column[0:index] = [0.0] if index else []
        self._join(1)

    def drop_past(self, before: int) -> None:
        """Drop the changes up to a step: its amounts hold from step 0 on."""
        index = bisect_right(self.starts, before) - 1
        del self.starts[1 : index + 1]
        for column in self.columns:
            del column[:index]

    def runs(self, since: int = 0) -> Iterator[tuple[int, int | None, list[float]]]:
        """Yield (from, to, amounts) of the runs in ``since`` or later; the last one has no end."""
        for index in range(bisect_right(self.starts, since) - 1, len(self.starts)):
            finish = self.starts[index + 1] if index + 1 < len(self.starts) else None
            yield self.starts[index], finish, [column[index] for column in self.columns]

    def _cut(self, step: int) -> int:
        """Return the run that begins at a step, splitting one if necessary."""
        index = bisect_right(self.starts, step)
        if self.starts[index - 1] == step:
            return index - 1
        self.starts.insert(index, step)
        for column in self.columns:
            column.insert(index, column[index - 1])
        return index

    def _join(self, index: int) -> None:
        """Join two equal neighbouring runs. (Fractions that differ by rounding stay apart, which does no harm.)"""
        if not 0 < index < len(self.starts):
            return
        for column in self.columns:
            if column[index - 1] != column[index]:
                return
        del self.starts[index]
        for column in self.columns:
            del column[index]


class Plan:
    """The promises of all reservations. It does not check the capacity: the planners are responsible for that."""

    def __init__(self, capacity: Bundle) -> None:
        self.capacity = Steps(capacity.amounts)
        self.free = Steps(capacity.amounts)
        #: Changes with each change of promises.
        self.version = 0
        #: Changes with each change of the capacity.
        self.capacity_version = 0
        #: An additional bound on planners, within :meth:`limited`.
        self.limit: Steps | None = None
        self._pieces: dict[str, tuple[Piece, ...]] = {}

    def reservations(self) -> Mapping[str, tuple[Piece, ...]]:
        """Return reservation → its promised pieces, in the order of addition."""
        return self._pieces

    def add(self, reservation: str, pieces: Iterable[Piece]) -> None:
        """Add a reservation's pieces.

        Raises: KeyError: it is in the plan already.
        """
        self.add_taken(reservation, pieces)
        for piece in self._pieces[reservation]:
            self.take(piece)

    def add_taken(self, reservation: str, pieces: Iterable[Piece]) -> None:
        """As :meth:`add`, for pieces that a planner has taken already."""
        if reservation in self._pieces:
            raise KeyError(f"{reservation} is in the plan")
        self._pieces[reservation] = tuple(sorted(pieces, key=lambda piece: (piece.start, piece.finish)))
        self.version += 1

    def remove(self, reservation: str) -> None:
        """Remove a reservation.

        Raises: KeyError: it is not in the plan.
        """
        pieces = self._pieces.pop(reservation)
        self.version += 1
        for piece in pieces:
            self.give_back(piece)

    def set_capacity(self, since: int, capacity: Bundle, until: int | None = None) -> None:
        """Set the capacity in [since, until), or from ``since`` on; promises do not change."""
        changes = Steps()
        self.capacity_version += 1
        for start, finish, row in self.capacity.runs():
            first, end = max(start, since), min((each for each in (finish, until) if each is not None), default=None)
            if end is None or first < end:
                changes.add(first, end, [new - old for new, old in zip(capacity.amounts, row, strict=True)])
        for start, finish, change in changes.runs():
            self.capacity.add(start, finish, change)
            self.free.add(start, finish, change)

    def drop_past(self, before: int) -> None:
        """Drop what changed before a step, which no query asks for any more; promises do not change."""
        self.capacity.drop_past(before)
        self.free.drop_past(before)

    def overcommitted(self, since: int = 0, until: int | None = None) -> int | None:
        """Return the first step in [since, until), or from ``since`` on, in which promises exceed the capacity."""
        for start, _, row in self.free.runs(since):
            if until is not None and start >= until:
                return None
            if min(row) < -EPSILON:
                return max(start, since)
        return None

    @contextmanager
    def limited(self, limit: Steps | None) -> Iterator[None]:
        """Bound planners by ``limit`` within the context; pieces they take are subtracted from it, too."""
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
        """Subtract a piece from the free capacity, without a reservation: used while planning."""
        self._put(piece, -1)

    def give_back(self, piece: Piece) -> None:
        """Undo :meth:`take`."""
        self._put(piece, 1)

    def _put(self, piece: Piece, sign: int) -> None:
        self.free.put([piece], sign)
        if self.limit is not None:
            self.limit.put([piece], sign)
