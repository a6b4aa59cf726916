"""Check of an allocation against a request, by the definition of the language, independent of the planners."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from master.reservations.rdl import All, Any, Atom, Expression, Order, Window
from penstock.model.units import counted

#: [from, to) in steps, and the number of bundles; in order, without overlap.
Intervals = Sequence[tuple[int, int, int]]
#: Intervals for each atom, in the order of :func:`atoms_of`; empty for alternatives not chosen.
Allocation = Sequence[Intervals]


@dataclass(frozen=True, slots=True)
class _Extent:
    """The first step with an allocation and the step after the last one; None: there is none."""

    first: int | None
    last: int | None


def unsatisfied(expression: Expression, allocation: Allocation) -> str:
    """Return the first reason why an allocation does not satisfy the expression; empty if it does.

    Raises: ValueError: the intervals do not correspond to the atoms.
    """
    left = iter(allocation)
    try:
        why, _ = _look(expression, left, None)
    except StopIteration:
        raise ValueError("an allocation has intervals for each atom") from None
    if next(left, None) is not None:
        raise ValueError("an allocation has no more intervals than atoms")
    return why


def _look(expression: Expression, left: Iterator[Intervals], within: tuple[int, int] | None) -> tuple[str, _Extent]:
    match expression:
        case Atom():
            intervals = next(left)
            return _atom(expression, intervals, within), _extent([intervals])
        case Window(part, start, finish):
            if within is not None:
                start, finish = max(start, within[0]), min(finish, within[1])
            return _look(part, left, (start, finish))
        case Any(parts):
            looks = [_look(part, left, within) for part in parts]
            given = [look for look in looks if look[1].first is not None]
            if len(given) > 1:
                return "more than one alternative is given something", _hull(looks)
            chosen = given or looks
            return min((why for why, _ in chosen), key=bool), _hull(looks)
        case All(parts):
            looks = [_look(part, left, within) for part in parts]
            return next((why for why, _ in looks if why), ""), _hull(looks)
        case Order(parts, no_gap):
            looks = [_look(part, left, within) for part in parts]
            why = next((why for why, _ in looks if why), "")
            return why or _in_order([extent for _, extent in looks], no_gap=no_gap), _hull(looks)


def _in_order(extents: list[_Extent], *, no_gap: bool) -> str:
    ended: int | None = None
    for number, extent in enumerate(extents, 1):
        if extent.first is None or extent.last is None:  # it has no work
            continue
        if ended is not None and extent.first < ended:
            return f"part {number} of an order begins at {extent.first}, before the one before it ends at {ended}"
        if ended is not None and no_gap and extent.first > ended:
            return f"part {number} of an order without gaps begins at {extent.first}, not at {ended}"
        ended = extent.last
    return ""


def _hull(looks: list[tuple[str, _Extent]]) -> _Extent:
    firsts = [extent.first for _, extent in looks if extent.first is not None]
    lasts = [extent.last for _, extent in looks if extent.last is not None]
    return _Extent(min(firsts, default=None), max(lasts, default=None))


def _extent(all_of: list[Intervals]) -> _Extent:
    given = [each for intervals in all_of for each in intervals]
    return _Extent(min((a for a, _, _ in given), default=None), max((b for _, b, _ in given), default=None))


def _atom(atom: Atom, intervals: Intervals, within: tuple[int, int] | None) -> str:
    if not atom.work:
        return "what asks for no work is given some" if intervals else ""
    start = max(atom.start or 0, within[0] if within else 0)
    finishes = [each for each in (atom.finish, within[1] if within else None) if each is not None]
    before = 0
    for first, last, bundles in intervals:
        if first < before or last <= first:
            return f"[{first}, {last}) does not follow what ends at {before}"
        if first < start or any(last > finish for finish in finishes):
            return f"[{first}, {last}) is not within [{start}, {min(finishes, default='∞')})"
        if not atom.gang <= bundles <= atom.parallelism:
            return f"{counted(bundles, 'bundle')}, not {atom.gang} to {atom.parallelism}"
        before = last
    work = sum((last - first) * bundles for first, last, bundles in intervals)
    if work < atom.work:
        return f"{counted(work, 'bundle-step')} of {atom.work}"
    return _leases(atom.lease, intervals)


def _leases(lease: int, intervals: Intervals) -> str:
    """Return whether each bundle can have stayed for the lease: it can if bundles leave in order of arrival."""
    came: deque[tuple[int, int]] = deque()  # step, how many
    held, at = 0, 0
    for first, last, bundles in [*intervals, (intervals[-1][1], intervals[-1][1] + 1, 0)]:
        steps = [(at, 0)] if first > at and held else []
        for step, wanted in [*steps, (first, bundles)]:
            while held > wanted:
                since, count = came[0]
                if step - since < lease:
                    return f"bundles leave at {step} that came at {since}, before their lease of {lease} is over"
                gone = min(count, held - wanted)
                held -= gone
                came[0] = (since, count - gone)
                if not came[0][1]:
                    came.popleft()
            if wanted > held:
                came.append((step, wanted - held))
                held = wanted
        at = last
    return ""
