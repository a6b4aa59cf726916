"""PURE. Each owner's promises over time, and the rest that the sharing policies allow (Rayon §5.2).

Planners see the rest of an owner's quota as a limit beside the free capacity. For the quota at any time that is exact.
The quota in a sliding window is not a limit per step: plans are tried under limits that keep every window within its
quota, and each plan is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from master.reservations.plan import EPSILON, Piece, Plan, Steps, clipped
from master.reservations.rdl import All, Any, Atom, Expression, Order, Window, bounds_of
from master.reservations.sharing import ROUNDING, Floats, Instantaneous, Integral, Show, Windows
from penstock.model.resource_vector import ResourceVector

Ints = npt.NDArray[np.int64]
#: More than any request.
_UNBOUND = 1e30
#: Tolerance for fractions lost by rounding.
_NEARLY = 1e-9
#: Largest number of changes of a limit derived from windows.
_MOST_MARKS = 512


@dataclass(slots=True)
class _Owner:
    """``used``: all amounts from the last window on; ``past``: the part of it from turns no longer in the agenda.
    ``room``: the rest at any time, for the capacity of ``version``.
    """

    used: Steps = field(default_factory=Steps)
    past: Steps = field(default_factory=Steps)
    room: Steps | None = None
    version: int = -1


class Quotas:
    """Owners' amounts, updated by :meth:`take` and :meth:`release`, and their bounds, by :meth:`limits` and
    :meth:`accept`.
    """

    def __init__(self, plan: Plan, policies: Sequence[Instantaneous | Integral], show: Show = str) -> None:
        self._plan = plan
        self._policies = policies
        self._show = show
        self._at_once = min((each.share for each in policies if isinstance(each, Instantaneous)), default=None)
        self._over_time = [each for each in policies if isinstance(each, Integral)]
        self._window = max((each.window for each in self._over_time), default=0)
        self._owners: dict[str, _Owner] = {}
        self._known_since = 0  # earlier time is not counted
        #: Number of the runs that were read to check windows.
        self.examined = 0
        self._changed: set[str] = set()  # owners whose past has changed since it was stored

    # ------------------------------------------------------------ what owners have

    def take(self, owner: str, pieces: Iterable[Piece]) -> None:
        """Count pieces towards the owner's amounts."""
        if self._policies:
            self._change(owner, pieces, self._known_since, 1)

    def release(self, owner: str, pieces: Sequence[Piece], now: int) -> None:
        """Stop counting the pieces' future; within the window, their past still counts."""
        if self._policies:
            self._change(owner, pieces, now, -1)
            self._record(owner, pieces, now, 1)

    def take_again(self, owner: str, pieces: Sequence[Piece], now: int) -> None:
        """Undo :meth:`release`."""
        if self._policies:
            self._record(owner, pieces, now, -1)
            self._change(owner, pieces, now, 1)

    def advance(self, now: int) -> int:
        """Advance the time: drop amounts before all later windows. Return the first step that still counts."""
        self._known_since = max(self._known_since, now - self._window)
        for name, one in list(self._owners.items()):
            if _over(one.used, self._known_since):
                one.used.clear_before(self._known_since)
            if _over(one.past, self._known_since):
                one.past.clear_before(self._known_since)
                self._changed.add(name)
            if one.room is not None:
                one.room.drop_past(self._known_since)
            if not any(map(any, one.used.columns)) and not any(map(any, one.past.columns)):
                del self._owners[name]
        return self._known_since

    def past(self, owner: str) -> list[tuple[int, int, list[float]]]:
        """Return the owner's amounts of finished turns: (start, finish, amounts)."""
        one = self._owners.get(owner)
        runs = () if one is None else one.past.runs()
        return [(start, finish, row) for start, finish, row in runs if finish is not None and any(row)]

    def changed(self) -> frozenset[str]:
        """Return the owners whose past has changed since it was stored."""
        return frozenset(self._changed)

    def stored(self, owners: Iterable[str]) -> None:
        """Record that the present past of these owners is stored."""
        self._changed.difference_update(owners)

    def set_past(self, owner: str, past: Iterable[tuple[int, int, Sequence[float]]]) -> None:
        """Replace :meth:`past` by a stored one."""
        if not self._window:
            return
        one = self._owners.setdefault(owner, _Owner())
        for start, finish, row in self.past(owner):
            for steps in (one.used, one.past):
                steps.add(start, finish, [-amount for amount in row])
        for start, finish, amounts in past:
            if max(start, self._known_since) < finish:
                for steps in (one.used, one.past):
                    steps.add(max(start, self._known_since), finish, amounts)
        one.version = -1
        self._changed.add(owner)

    # ------------------------------------------------------------ what they may have

    def limits(
        self, owner: str, expression: Expression, first: int, last: int, before: Steps | None = None
    ) -> Iterator[Steps | None]:
        """Yield limits for a planner to try within [first, last), in turn, after :meth:`accept` refused a plan without
        a limit.

        ``before``: amounts that an update replaces; staying within them at all times is always accepted.
        """
        one = self._owners.setdefault(owner, _Owner())
        if (room := self._room(one)) is not None:
            yield room
        if before is not None:
            yield before.times(1.0)
        if self._over_time:
            first, last = bounds_of(expression, first, last)
            last = max(first + 1, last)
            for divided in (False, True):
                self._examine(one, first, last)
                limit = self._within_windows(one, expression, first, last, divided=divided)
                if limit is not None:
                    yield limit

    def accept(self, owner: str, pieces: Sequence[Piece], limit: Steps | None, before: Steps | None = None) -> str:
        """Count pieces planned under a limit (None: without one). Return an empty string, or why they exceed a quota;
        then they do not count.
        """
        one = self._owners.setdefault(owner, _Owner())
        within_room = limit is not None and limit is one.room
        one.used.put(pieces)
        self._examine(one, min((p.start for p in pieces), default=0), max((p.finish for p in pieces), default=0))
        why = ""
        if before is None or not _within(pieces, before):
            policies = self._over_time if within_room else self._policies
            said = (each.too_much(self._plan.capacity, owner, one.used, pieces, self._show) for each in policies)
            why = next((line for line in said if line), "")
        if why:
            one.used.put(pieces, -1)
            return why
        if not within_room and one.room is not None:
            one.room.put(pieces, -1)
        if before is not None:
            before.put(pieces, -1)
        return ""

    # ------------------------------------------------------------ inside

    def _examine(self, one: _Owner, first: int, last: int) -> None:
        """Count the runs of the windows that overlap [first, last)."""
        if self._over_time:
            a, b = one.used.span(max(0, first - self._window), last + self._window)
            self.examined += b - a

    def _change(self, owner: str, pieces: Iterable[Piece], since: int, sign: int) -> None:
        """Change the owner's amounts by the pieces from a step on."""
        one, changed = self._owners.setdefault(owner, _Owner()), clipped(pieces, since)
        one.used.put(changed, sign)
        if one.room is not None:
            one.room.put(changed, -sign)

    def _record(self, owner: str, pieces: Iterable[Piece], now: int, sign: int) -> None:
        """Change the owner's past by the pieces before a step."""
        if self._window and (changed := clipped(pieces, self._known_since, now)):
            self._owners.setdefault(owner, _Owner()).past.put(changed, sign)
            self._changed.add(owner)

    def _room(self, one: _Owner) -> Steps | None:
        """Return the rest of the owner's quota at any time; None: unlimited."""
        if self._at_once is None:
            return None
        if one.room is None or one.version != self._plan.capacity_version:
            room = one.used.times(-1.0)
            for start, finish, row in self._plan.capacity.runs():
                room.add(start, finish, [self._at_once * amount * (1 + ROUNDING) for amount in row])
            one.room, one.version = room, self._plan.capacity_version
        return one.room

    def _within_windows(
        self, one: _Owner, expression: Expression, first: int, last: int, *, divided: bool
    ) -> Steps | None:
        """Return a limit that keeps every window within its quota: steps whose windows have room for the whole
        expression, or, if ``divided``, an equal part per step of the rest in the fullest window around it. None: too
        little room is left.
        """
        room = self._room(one)
        limit = _Limit(first, last, Steps(ResourceVector._make([_UNBOUND] * 4)) if room is None else room)
        for policy in self._over_time:
            windows = Windows(policy, self._plan.capacity, one.used, first, last)
            marks = _thinned(np.concatenate((windows.begins, windows.begins + policy.window)), first, last)
            for index, (most, least) in enumerate(zip(_wanted(expression, max), _wanted(expression, min), strict=True)):
                if not most:
                    continue
                left = _least_around(marks, last, policy.window, windows.begins, windows.left(index))
                if divided:
                    left /= min(policy.window, last - first)
                    if left @ np.diff(marks, append=last) < least * (1 - _NEARLY):
                        return None
                else:
                    left = np.where(left >= most * (1 - _NEARLY), _UNBOUND, 0.0)
                    if not left.any():
                        return None
                limit.bound(index, marks, left)
        return limit.steps()


class _Limit:
    """Amounts over [first, last), the least of several limits."""

    def __init__(self, first: int, last: int, steps: Steps) -> None:
        a, b = steps.span(first, last)
        self.starts = np.array(steps.starts[a:b], dtype=np.int64)
        self.starts[0] = first
        self._columns = [np.array(column[a:b]) for column in steps.columns]

    def bound(self, index: int, marks: Ints, most: Floats) -> None:
        """Bound a resource by ``most``, from each mark on."""
        starts = np.union1d(self.starts, marks)
        own = np.searchsorted(self.starts, starts, side="right") - 1
        self._columns = [column[own] for column in self._columns]
        self.starts = starts
        others = most[np.searchsorted(marks, starts, side="right") - 1]
        self._columns[index] = np.minimum(self._columns[index], others)

    def steps(self) -> Steps:
        """Return the limit in the form for planners."""
        return Steps.of(self.starts.tolist(), [column.tolist() for column in self._columns])


def _thinned(marks: Ints, first: int, last: int) -> Ints:
    """Return ``first`` and the marks in [first, last), thinned to the largest number of a limit's changes."""
    within = np.unique(marks[(marks > first) & (marks < last)])
    return np.append(first, within[:: -(-len(within) // _MOST_MARKS) or 1])


def _least_around(marks: Ints, last: int, window: int, begins: Ints, left: Floats) -> Floats:
    """Return for each stretch between marks the least rest of any window that overlaps it."""
    lows, highs = np.maximum(0, marks - window + 1), np.append(marks[1:], last) - 1
    a, b = np.searchsorted(begins, lows), np.searchsorted(begins, highs, side="right")
    ranges = np.column_stack((a, b)).ravel()
    padded = np.append(left, np.inf)
    within = np.where(a < b, np.minimum.reduceat(padded, ranges)[::2], np.inf)
    at_ends = np.minimum(np.interp(lows, begins, left), np.interp(highs, begins, left))
    found: Floats = np.maximum(0.0, np.minimum(within, at_ends))
    return found


def _wanted(expression: Expression, chosen: Callable[[Iterable[float]], float]) -> list[float]:
    """Return the total of each resource, amounts × steps; ``chosen`` selects among alternatives."""
    match expression:
        case Atom():
            return [expression.work * float(amount) for amount in expression.bundle.amounts]
        case Window(part):
            return _wanted(part, chosen)
        case Any(parts):
            return [chosen(values) for values in zip(*(_wanted(part, chosen) for part in parts), strict=True)]
        case All(parts) | Order(parts):
            return [sum(values) for values in zip(*(_wanted(part, chosen) for part in parts), strict=True)]


def _over(steps: Steps, before: int) -> bool:
    """Return whether part of it lies before a step."""
    return len(steps.starts) > 1 and steps.starts[1] < before


def _within(pieces: Sequence[Piece], before: Steps) -> bool:
    """Return whether pieces stay within ``before`` at all times."""
    left = before.times(1.0)
    left.put(pieces, -1)
    return all(min(left.lowest(piece.start, piece.finish)) >= -EPSILON for piece in pieces)
