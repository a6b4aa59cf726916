"""PURE. GREE (Rayon §4.2): each expression as late as possible, in one pass from right to left, no backtracking.

Who comes late with an early deadline then finds room more often; what is idle until then is used all the same, since
production work may run ahead of its time (§5). ``early`` places everything as early as possible instead.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from master.reservations.plan import EPSILON, Piece, Plan
from master.reservations.rdl import All, Any, Atom, Expression, Order, Window, atoms_of

#: How often an order without gaps is tried with all of it moved, to close a gap.
_TRIES = 64

#: For each atom, from left to right, what it is given; nothing where an alternative was not chosen.
Placed = list[list[Piece]]
#: Steps [near, far) seen from the edge, and how many bundles have room there.
_Run = tuple[int, int, int]


class Gree:
    """Places one expression at a time in a plan, which is as it was before when that fails."""

    def __init__(self, plan: Plan, *, early: bool = False) -> None:
        self._plan = plan
        self._early = early

    def place(self, expression: Expression, now: int, horizon: int) -> Placed | None:
        """What to promise within [now, horizon); None: it does not fit. The plan stays as it is.

        ``expression`` is in its normal form.
        """
        placed = self._place(expression, now, horizon)
        self._undo(placed or [])
        return placed

    def promise(self, reservation: str, expression: Expression, now: int, horizon: int) -> Placed | None:
        """As :meth:`place`, and add it to the plan."""
        placed = self._place(expression, now, horizon)
        if placed is not None:
            self._plan.add_taken(reservation, (piece for pieces in placed for piece in pieces))
        return placed

    def _place(self, expression: Expression, start: int, finish: int) -> Placed | None:
        """Taken in the plan if it fits."""
        match expression:
            case Atom():
                first, last = max(start, expression.start or 0), finish
                if expression.finish is not None:
                    last = min(last, expression.finish)
                pieces = self._atom(expression, first, last)
                return None if pieces is None else [pieces]
            case Window(part, own_start, own_finish):
                return self._place(part, max(start, own_start), min(finish, own_finish))
            case Any(parts):
                return self._any(parts, start, finish)
            case All(parts):
                return self._in_turn(parts, start, finish, in_order=False)[0]
            case Order(parts, no_gap):
                return self._order(parts, start, finish) if no_gap else self._in_turn(parts, start, finish)[0]

    def _any(self, parts: tuple[Expression, ...], start: int, finish: int) -> Placed | None:
        """The first alternative that fits."""
        for chosen, part in enumerate(parts):
            placed = self._place(part, start, finish)
            if placed is not None:
                others: list[Placed] = [[[] for _ in atoms_of(other)] for other in parts]
                others[chosen] = placed
                return [pieces for each in others for pieces in each]
        return None

    def _order(self, parts: tuple[Expression, ...], start: int, finish: int) -> Placed | None:
        """Without gaps: where there is one, all of it moves on by that."""
        for _ in range(_TRIES):
            placed, gap = self._in_turn(parts, start, finish)
            if placed is None or not gap:
                return placed
            self._undo(placed)
            if self._early:
                start = gap + min(piece.start for pieces in placed for piece in pieces)
            else:
                finish = max(piece.finish for pieces in placed for piece in pieces) - gap
        return None

    def _in_turn(
        self, parts: tuple[Expression, ...], start: int, finish: int, *, in_order: bool = True
    ) -> tuple[Placed | None, int]:
        """One part after the other, from right to left; ``in_order``: each before those to its right. The first gap."""
        found: list[Placed] = []
        first_gap, before = 0, False
        for part in parts if self._early else reversed(parts):
            placed = self._place(part, start, finish)
            if placed is None:
                for each in found:
                    self._undo(each)
                return None, 0
            found.append(placed)
            if in_order and any(placed):
                begins = min(piece.start for pieces in placed for piece in pieces)
                ends = max(piece.finish for pieces in placed for piece in pieces)
                gap = (begins - start if self._early else finish - ends) if before else 0
                first_gap, before = first_gap or gap, True
                start, finish = (ends, finish) if self._early else (start, begins)
        return [pieces for each in (found if self._early else reversed(found)) for pieces in each], first_gap

    def _undo(self, placed: Placed) -> None:
        for pieces in placed:
            for piece in pieces:
                self._plan.give_back(piece)

    # ------------------------------------------------------------ one atom

    def _atom(self, atom: Atom, start: int, finish: int) -> list[Piece] | None:
        """The tallest and rightmost blocks: each as high as its lowest point within a lease lets it be, then on, to the
        left of that point."""
        left, pieces = atom.work, list[Piece]()
        edge = start if self._early else finish
        while left > 0:
            low, high = (edge, finish) if self._early else (start, edge)
            block = self._block(atom, _Runs(self._runs(atom, low, high, pieces)), left)
            if block is None:
                self._undo([pieces])
                return None
            piece, edge = block
            self._plan.take(piece)
            pieces.append(piece)
            left -= (piece.finish - piece.start) * piece.number
        return pieces

    def _block(self, atom: Atom, runs: _Runs, left: int) -> tuple[Piece, int] | None:
        """The next block, as near to the edge as one of a lease's length fits, and the next edge."""
        gang, lease, height = atom.gang, atom.lease, atom.parallelism
        first = lowest = length = 0
        for index, (near, far, room) in enumerate(runs.look()):
            if room < gang:
                first = lowest = index + 1
                height, length = atom.parallelism, 0
                continue
            if room < height:
                height, lowest = room, index
            length += far - near
            if length >= lease:
                return self._sized(atom, runs, first, index + 1, height, lowest, left)
        return None

    def _sized(
        self, atom: Atom, runs: _Runs, index: int, at: int, height: int, lowest: int, left: int
    ) -> tuple[Piece, int]:
        """As long as there is work, and room for that height; as low as the work that is left lets it be."""
        number = max(atom.gang, min(height, -(-left // atom.lease)))
        wanted = max(atom.lease, -(-left // number))
        near = runs.seen[index][0]
        far, at = near + atom.lease, at - 1
        limited = height < atom.parallelism  # by the plan: beyond its lowest run there is room for more
        while far - near < wanted and (run := runs.at(at)) is not None:
            if run[2] < number or (limited and run[2] > number):
                break
            far, at = min(run[1], near + wanted), at + 1
        edge = min(far, runs.seen[lowest][1]) if limited else far
        if self._early:
            return Piece(near, far, atom.bundle, number), edge
        return Piece(-far, -near, atom.bundle, number), -edge

    def _runs(self, atom: Atom, low: int, high: int, own: list[Piece]) -> Iterator[_Run]:
        """How many bundles have room within [low, high), from the edge on; mirrored where late is wanted."""
        starts, rows = self._plan.free.starts, self._plan.free.rows
        needs = [(index, amount) for index, amount in enumerate(atom.bundle.amounts) if amount]
        marks = sorted({each for piece in own for each in (piece.start, piece.finish)})
        first, last = bisect_right(starts, low) - 1, bisect_left(starts, high)
        for index in range(first, last) if self._early else range(last - 1, first - 1, -1):
            row = rows[index]
            room = atom.parallelism
            for each, amount in needs:
                bundles = int((row[each] + EPSILON) / amount)
                if bundles < room:
                    room = bundles
            a = starts[index] if index > first else low
            b = starts[index + 1] if index + 1 < last else high
            if not own:
                yield (a, b, room) if self._early else (-b, -a, room)
                continue
            parts = _split(a, b, marks)
            for x, y in parts if self._early else reversed(parts):
                held = sum(piece.number for piece in own if piece.start <= x < piece.finish)
                bundles = max(0, min(room, atom.parallelism - held))
                yield (x, y, bundles) if self._early else (-y, -x, bundles)


class _Runs:
    """Looked at as far as somebody wants to see."""

    def __init__(self, source: Iterator[_Run]) -> None:
        self._source = source
        self.seen: list[_Run] = []

    def look(self) -> Iterator[_Run]:
        """From the edge on; to be used once."""
        for run in self._source:
            self.seen.append(run)
            yield run

    def at(self, index: int) -> _Run | None:
        """None: there is none behind it."""
        while len(self.seen) <= index:
            run = next(self._source, None)
            if run is None:
                return None
            self.seen.append(run)
        return self.seen[index]


def _split(start: int, finish: int, marks: list[int]) -> list[tuple[int, int]]:
    inside = [mark for mark in marks if start < mark < finish]
    return list(zip([start, *inside], [*inside, finish], strict=True))
