"""Random expressions so small that all of their allocations can be counted, and the allocations that satisfy them, by
enumeration.

An allocation here is the total of one bundle's kind, one number for each step: parts of an expression add up.
"""

from __future__ import annotations

from functools import cache
from itertools import product

from hypothesis import strategies as st

from master.reservations.rdl import All, Any, Atom, Bundle, Expression, Order, Window

STEPS = 4
MOST = 2
B = Bundle(cpu_cores=1.0)
Heights = tuple[int, ...]

atoms = st.builds(
    lambda gang, more, lease, work: Atom(B, gang, min(MOST, gang + more), lease, work),
    st.integers(1, 2),
    st.integers(0, 1),
    st.integers(1, 3),
    st.integers(0, 4),
)
starts = st.integers(0, STEPS - 1)


def _nested(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    some = st.lists(parts, min_size=1, max_size=3).map(tuple)
    windows = st.builds(lambda part, a, n: Window(part, a, a + n), parts, starts, st.integers(1, STEPS))
    return st.one_of(st.builds(Any, some), st.builds(All, some), st.builds(Order, some, st.booleans()), windows)


expressions = st.recursive(atoms, _nested, max_leaves=3)


def given_in_all(expression: Expression, start: int = 0, finish: int = STEPS) -> set[Heights]:
    """Every total that some satisfying allocation adds up to, by the words of Rayon §3.1."""
    match expression:
        case Atom():
            finishes = STEPS if expression.finish is None else min(STEPS, expression.finish)
            return _given(expression, max(start, expression.start or 0), min(finish, finishes))
        case Window(part, a, b):
            return given_in_all(part, max(start, a), min(finish, b))
        case Any(parts):
            return set().union(*(given_in_all(part, start, finish) for part in parts))
        case All(parts):
            totals = {(0,) * STEPS}
            for part in parts:
                totals = {add(one, other) for one in totals for other in given_in_all(part, start, finish)}
            return totals
        case Order(parts, no_gap):
            chains = {((0,) * STEPS, None)}
            for part in parts:
                chains = {
                    (add(total, each), _last(each) if any(each) else ended)
                    for total, ended in chains
                    for each in given_in_all(part, start, finish)
                    if not any(each) or ended is None or (_first(each) == ended if no_gap else _first(each) >= ended)
                }
            return {total for total, _ in chains}


@cache
def _given(atom: Atom, start: int, finish: int) -> set[Heights]:
    every = product(range(atom.parallelism + 1), repeat=STEPS)
    return {each for each in every if _atom(atom, each, start, finish)}


def add(one: Heights, other: Heights) -> Heights:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def intervals(heights: Heights) -> list[tuple[int, int, int]]:
    """Return them in a planner's form."""
    found: list[tuple[int, int, int]] = []
    for step, height in enumerate(heights):
        if height and found and found[-1][1] == step and found[-1][2] == height:
            found[-1] = (found[-1][0], step + 1, height)
        elif height:
            found.append((step, step + 1, height))
    return found


def _first(heights: Heights) -> int:
    return next(step for step, height in enumerate(heights) if height)


def _last(heights: Heights) -> int:
    return STEPS - next(back for back, height in enumerate(reversed(heights)) if height)


def _atom(atom: Atom, heights: Heights, start: int, finish: int) -> bool:
    if not atom.work:
        return not any(heights)
    inside = all(start <= step < finish for step, height in enumerate(heights) if height)
    gangs = all(height == 0 or atom.gang <= height <= atom.parallelism for height in heights)
    return inside and gangs and sum(heights) >= atom.work and _made_of_leases(heights, atom.lease)


def _made_of_leases(heights: Heights, lease: int) -> bool:
    """Whether so many bundles can each have stayed for so long: by trying every set of stays."""
    if not any(heights):
        return True
    first = _first(heights)
    for length in range(lease, STEPS - first + 1):
        stay = tuple(int(first <= step < first + length) for step in range(STEPS))
        left = tuple(height - one for height, one in zip(heights, stay, strict=True))
        if min(left) >= 0 and _made_of_leases(left, lease):
            return True
    return False
