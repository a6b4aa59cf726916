"""PURE. GREE (Rayon §4.2): place each expression as late as possible, in one pass from right to left, no backtracking.

Later requests with an early deadline then find room more often; capacity idle until then is used anyway, because
production work may run ahead of its time (§5). ``early`` places expressions as early as possible instead.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain, groupby, islice, repeat

from msgspec.structs import replace

from master.reservations.effort import ATOM, PIECE, RUN, SMALL, Effort
from master.reservations.least import least, least_anywhere, small
from master.reservations.least_solved import STEPS, least_solved
from master.reservations.plan import Piece, Plan
from master.reservations.rdl import All, Any, Atom, Expression, Order, Window, atoms_of
from master.reservations.runs import from_edge, limited, rooms_in_runs, within_own_limit
from master.reservations.shapes import Shape, given, shape, shapes

#: Number of attempts to close a gap in a gapless order by moving all of it.
_TRIES = 64

#: For each atom, from left to right, its pieces; empty for alternatives not chosen.
Placed = list[list[Piece]]
#: Steps [near, far) seen from the edge, and the number of bundles that fit, as a quotient.
_Run = tuple[int, int, float]
_NO_ROOM: _Run = (0, sys.maxsize, -1.0)
#: Numbers of heights, and of steps off the edge, tried for an atom that would be given more than it needs; and of
#: shapes that determine its need. With these, orders of three take a third longer to plan, single atoms 7 %.
_HEIGHTS, _EDGES, _SHAPES = 4, 4, 8
#: Number of steps from the edge in which all allocations of a small atom are tried.
_TRIED = 2048


class Gree:
    """Places one expression at a time in a plan; the plan is unchanged on failure."""

    def __init__(self, plan: Plan, *, early: bool = False) -> None:
        self._plan = plan
        self._early = early
        #: What the present request may still take; exhausted, no atom fits.
        self.effort = Effort()
        self._shortest = False

    def place(self, expression: Expression, now: int, horizon: int) -> Placed | None:
        """Return a placement within [now, horizon); None: it does not fit. The plan is unchanged.

        ``expression`` is in its normal form.
        """
        placed = self._fitted(expression, now, horizon)
        self._undo(placed or [])
        return placed

    def promise(self, reservation: str, expression: Expression, now: int, horizon: int) -> Placed | None:
        """As :meth:`place`, but add the placement to the plan."""
        placed = self._fitted(expression, now, horizon)
        if placed is not None:
            self._plan.add_taken(reservation, chain.from_iterable(placed))
        return placed

    def _fitted(self, expression: Expression, start: int, finish: int) -> Placed | None:
        """Place and take the expression if it fits; otherwise try again with more than the work where that takes less
        time.

        An atom may otherwise leave too little time to the others.
        """
        placed = self._place(expression, start, finish)
        shorter = (atom for atom in atoms_of(expression) if atom.lease > 1 and atom.work % atom.lease > 0)
        if placed is None and not isinstance(expression, Atom) and any(shorter):
            self._shortest = True
            placed = self._place(expression, start, finish)
            self._shortest = False
        return placed

    def _place(self, expression: Expression, start: int, finish: int) -> Placed | None:
        """Place and take the expression if it fits."""
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
        """Place the first alternative that fits."""
        for chosen, part in enumerate(parts):
            placed = self._place(part, start, finish)
            if placed is not None:
                others: list[Placed] = [[[] for _ in atoms_of(other)] for other in parts]
                others[chosen] = placed
                return [*chain.from_iterable(others)]
        return None

    def _order(self, parts: tuple[Expression, ...], start: int, finish: int) -> Placed | None:
        """Place an order without gaps: on a gap, move all of it by the gap's length."""
        for _ in range(_TRIES):
            placed, gap = self._in_turn(parts, start, finish)
            if placed is None or not gap:
                return placed
            self._undo(placed)
            if self._early:
                start = gap + min(piece.start for piece in chain.from_iterable(placed))
            else:
                finish = max(piece.finish for piece in chain.from_iterable(placed)) - gap
        return None

    def _in_turn(
        self, parts: tuple[Expression, ...], start: int, finish: int, *, in_order: bool = True
    ) -> tuple[Placed | None, int]:
        """Place the parts from right to left; ``in_order``: each before those to its right. Also return the first
        gap.
        """
        found: list[Placed] = []
        first_gap, before = 0, False
        line = parts if self._early else parts[::-1]
        for index, part in enumerate(line):
            placed = self._next(line, index, start, finish) if in_order else self._place(part, start, finish)
            if placed is None:
                for each in found:
                    self._undo(each)
                return None, 0
            found.append(placed)
            if in_order and any(placed):
                begins = min(piece.start for piece in chain.from_iterable(placed))
                ends = max(piece.finish for piece in chain.from_iterable(placed))
                gap = (begins - start if self._early else finish - ends) if before else 0
                first_gap, before = first_gap or gap, True
                start, finish = (ends, finish) if self._early else (start, begins)
        return [*chain.from_iterable(found if self._early else reversed(found))], first_gap

    def _next(self, line: tuple[Expression, ...], index: int, start: int, finish: int) -> Placed | None:
        """Place the next part of an order in the time that the parts before it in the ``line`` have left."""
        return self._place(line[index], start, finish)

    def _undo(self, placed: Placed) -> None:
        for piece in chain.from_iterable(placed):
            self._plan.give_back(piece)

    # ------------------------------------------------------------ one atom

    def _atom(self, atom: Atom, start: int, finish: int) -> list[Piece] | None:
        """Place and take an atom if it fits. If its blocks give more than the minimum, try alternatives: exhaustively
        for small atoms; for others from a little off the edge, or lower, or by a solver.
        """
        if self.effort.exhausted:
            return None
        self.effort.spend(ATOM)
        pieces = self._blocks(atom, start, finish)
        if (
            pieces is None
            or self._shortest
            or (most := _given(pieces)) <= atom.work
            or most <= (enough := _least(atom))
        ):
            return pieces
        self._undo([pieces])
        for other in self._otherwise(atom, start, finish, enough, most):
            if _given(other) < most:
                pieces, most = other, _given(other)
            if most <= enough:
                break
        for piece in pieces:
            self._plan.take(piece)
        return pieces

    def _otherwise(self, atom: Atom, start: int, finish: int, enough: int, most: int) -> Iterator[list[Piece]]:
        """Yield other placements of the atom, not taken in the plan; ``most``: the amount given by the first one."""
        if small(atom):
            self.effort.spend(SMALL)
            heights = least(atom, map(int, islice(self._rooms(atom, start, finish), _TRIED)), enough, most)
            yield from self._steps(atom, start, finish, heights)
            return
        for height in range(atom.parallelism, atom.gang - 1, -1)[:_HEIGHTS]:
            lower = replace(atom, parallelism=height)
            for off in range(min(2 * atom.lease, _EDGES) + 1):
                bounds = (start + off, finish) if self._early else (start, finish - off)
                pieces = self._blocks(lower, *bounds)
                if pieces is not None:
                    self._undo([pieces])
                    yield pieces
        yield from self._steps(atom, start, finish, self._solved(atom, start, finish, most))
        if finish - start > STEPS:
            yield from self._beyond(atom, start, finish, most)

    def _beyond(self, atom: Atom, start: int, finish: int, most: int) -> Iterator[list[Piece]]:
        """Yield a placement for work that takes more steps than the solver examines: the solver places the last part,
        beyond the blocks that are kept.

        Blocks as long as the lease are allocations by themselves. The last part has no step in common with them, so
        it is an allocation by itself, too.
        """
        pieces = self._blocks(atom, start, finish) or []
        self._undo([pieces])
        ends = [piece.finish if self._early else -piece.start for piece in pieces]
        kept, edge = list[Piece](), start if self._early else -finish
        for piece, far in zip(pieces, ends, strict=True):
            if piece.finish - piece.start < atom.lease or max(ends) - far < STEPS // 2:
                break
            kept.append(piece)
            edge = max(edge, far)
        if not kept:
            return
        left = replace(atom, work=atom.work - _given(kept))
        bounds = (edge, finish) if self._early else (start, -edge)
        for last in self._steps(atom, *bounds, self._solved(left, *bounds, most - _given(kept), nearest=False)):
            yield kept + last

    def _solved(self, atom: Atom, start: int, finish: int, most: int, *, nearest: bool = True) -> list[int] | None:
        """Return the solver's bundles in each step from the edge on, if they give less than ``most``."""
        rooms = tuple(islice(self._rooms(atom, start, finish), STEPS))
        question = (atom.gang, atom.parallelism, atom.lease, atom.work, rooms, most, nearest)
        return self.effort.solved(question, lambda: least_solved(atom, rooms, most, nearest=nearest))

    def _rooms(self, atom: Atom, start: int, finish: int) -> Iterator[float]:
        """Yield the number of bundles that fit in each step, from the edge on."""
        for near, far, room in self._runs(atom, start, finish, []):
            yield from repeat(room, far - near)

    def _steps(self, atom: Atom, start: int, finish: int, heights: list[int] | None) -> Iterator[list[Piece]]:
        """Yield the pieces for these numbers of bundles in each step from the edge on; nothing for None."""
        if heights is not None:
            shape = [(len(list(same)), height) for height, same in groupby(heights)]
            found = self._pieces(atom, start if self._early else -finish, shape)
            yield [piece for piece in found if piece.number]

    def _blocks(self, atom: Atom, start: int, finish: int) -> list[Piece] | None:
        """Place the tallest, rightmost blocks: each as high as its lowest point allows, the next one left of that."""
        left, pieces = atom.work, list[Piece]()
        low, high = start, finish
        while left > 0:
            fits = high - low >= atom.lease and (high - low) * atom.parallelism >= left and not self.effort.exhausted
            block = self._block(atom, low, high, pieces, left) if fits else None
            self.effort.spend(PIECE)
            if block is None:
                self._undo([pieces])
                return None
            found, edge = block
            low, high = (edge, high) if self._early else (low, edge)
            for piece in found:
                self._plan.take(piece)
                pieces.append(piece)
                left -= piece.work
        return pieces

    def _block(self, atom: Atom, low: int, high: int, own: list[Piece], left: int) -> tuple[list[Piece], int] | None:
        """Return the next block, as near to the edge as a block of a lease's length fits, and the next edge.

        A block with room for all remaining work has the shape that gives least; another gives at most that work.
        """
        gang, lease, height = atom.gang, atom.lease, atom.parallelism
        begins = lowest = length = far = 0
        room = 0.0
        runs = self._runs(atom, low, high, own)
        for near, far, room in runs:
            if room < gang:
                height, length = atom.parallelism, 0
                continue
            if not length:
                begins, lowest = near, far
            if room < height:
                height, lowest = int(room), far
            length += far - near
            if length >= lease:
                break
        if length < lease:
            return None
        ahead = _Ahead(begins + lease, [(far, room)], runs)
        tall = max(gang, -(-left // lease))
        if tall <= height:
            return self._pieces(atom, begins, self._last(atom, begins, left, tall, ahead)), 0
        limited = height < atom.parallelism  # by the plan: beyond its lowest run there is room for more
        wanted = begins + left // height  # while all bundles have work
        ends = begins + lease
        while ends < wanted and room >= height and not (limited and room >= height + 1):
            ends = min(far, wanted)
            far, room = ahead.next()
        if ends == wanted:
            for each in shapes(left, range(height, gang - 1, -1), gang, lease):
                if ahead.fits(begins, each):
                    return self._pieces(atom, begins, each), 0
        edge = min(ends, lowest) if limited else ends
        return self._pieces(atom, begins, [(ends - begins, height)]), edge if self._early else -edge

    def _last(self, atom: Atom, begins: int, left: int, tall: int, ahead: _Ahead) -> Shape:
        """Return the shape of the remaining work, where ``tall`` bundles in a lease's length suffice."""
        most = tall * atom.lease
        if most > left and not self._shortest:
            numbers = range(left // atom.lease, atom.gang - 1, -1)
            for each in shapes(left, numbers, atom.gang, atom.lease):
                if given(each) < most and ahead.fits(begins, each):
                    return each
        return [(atom.lease, tall)]

    def _pieces(self, atom: Atom, begins: int, shape: Shape) -> list[Piece]:
        """Return the pieces of a shape, from the edge outwards."""
        pieces = list[Piece]()
        for steps, number in shape:
            ends = begins + steps
            span = (begins, ends) if self._early else (-ends, -begins)
            pieces.append(Piece(*span, number, atom.bundle))
            begins = ends
        return pieces

    def _runs(self, atom: Atom, low: int, high: int, own: list[Piece]) -> Iterator[_Run]:
        """Yield the number of bundles that fit within [low, high), from the edge on; mirrored for late placement."""
        return chain.from_iterable(self._parts(atom, low, high, own))

    def _parts(self, atom: Atom, low: int, high: int, own: list[Piece]) -> Iterator[Iterable[_Run]]:
        starts, columns = self._plan.free.starts, self._plan.free.columns
        needs = [(columns[index], float(amount)) for index, amount in enumerate(atom.bundle.amounts) if amount]
        first, last = bisect_right(starts, low) - 1, bisect_left(starts, high)
        for a, b in from_edge(first, last, early=self._early):
            marks = [max(starts[a], low), *starts[a + 1 : b], starts[b] if b < last else high]
            rooms = rooms_in_runs(needs, a, b, float(atom.parallelism))
            if self._plan.limit is not None:
                marks, rooms = limited(self._plan.limit, atom, marks, rooms)
            beside = [piece for piece in own if piece.start < marks[-1] and piece.finish > marks[0]]
            self.effort.spend(RUN * (b - a) + 0.1 * len(own))
            if beside:
                marks, rooms = within_own_limit(beside, marks, rooms, atom.parallelism)
            if self._early:
                yield zip(marks, marks[1:], rooms, strict=False)
            else:
                marks = [-mark for mark in reversed(marks)]
                yield zip(marks, marks[1:], reversed(rooms), strict=False)


def _given(pieces: Iterable[Piece]) -> int:
    return sum(piece.work for piece in pieces)


def _least(atom: Atom) -> int:
    """Return the least amount that must be given with unlimited room."""
    if small(atom):
        return least_anywhere(atom.gang, atom.parallelism, atom.lease, atom.work)
    numbers = range(atom.gang, atom.parallelism + 1)[:_SHAPES]
    return min(given(shape(atom.work, number, atom.gang, atom.lease)) for number in numbers)


class _Ahead:
    """The room from the end of a lease on, examined on demand."""

    __slots__ = ("_known", "_runs", "_since")

    def __init__(self, since: int, known: list[tuple[int, float]], runs: Iterator[_Run]) -> None:
        self._since = since
        self._known = known
        self._runs = runs

    def next(self) -> tuple[int, float]:
        """Return the next run: its far end and the number of bundles that fit; none after the last run."""
        _, far, room = next(self._runs, _NO_ROOM)
        self._known.append((far, room))
        return far, room

    def fits(self, begins: int, shape: Shape) -> bool:
        """Return whether a shape that begins at the edge has room beyond the lease."""
        index, ends = 0, begins
        for steps, number in shape:
            start, ends = max(ends, self._since), ends + steps
            while start < ends:
                far, room = self._known[index]
                if far > start and room < number:
                    return False
                if far < ends:
                    index += 1
                    if index == len(self._known):
                        self.next()
                start = max(start, far)
        return True
