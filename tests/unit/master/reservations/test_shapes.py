"""Shapes of an atom's work: by enumeration, none of any that keep lease and gang gives less."""

from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from master.reservations.rdl import Atom
from master.reservations.shapes import given as given_by
from master.reservations.shapes import shape, shapes, steps_of
from tests.unit.master.reservations.plan_bed import CORE
from tests.unit.master.reservations.satisfied import unsatisfied

_WORK = st.integers(1, 40)
_GANG = st.integers(1, 5)
_MORE = st.integers(0, 7)
_LEASE = st.integers(1, 5)


@cache
def falling(number: int, gang: int, most: int) -> frozenset[int]:
    """All sums up to ``most`` of numbers from ``gang`` to ``number`` that never rise: of any such numbers."""
    sums = {0}
    for each in range(gang, number + 1):
        for start in range(most + 1 - each):
            if start in sums:
                sums.add(start + each)
    return frozenset(sums)


@given(_WORK, _GANG, _MORE, _LEASE)
def test_no_shape_gives_less_than_the_first(work: int, gang: int, more: int, lease: int) -> None:
    parallelism, most = gang + more, work + gang * lease
    [least, *_] = shapes(work, range(parallelism, gang - 1, -1), gang, lease)
    possible = {
        number * lease + rest
        for number in range(gang, parallelism + 1)
        for rest in falling(number, gang, most)
        if number * lease + rest >= work
    }
    assert given_by(least) == min(possible)
    assert steps_of(least) * parallelism >= work


@given(_WORK, _GANG, _MORE, _LEASE)
def test_a_shape_keeps_lease_and_gang_and_gives_the_work(work: int, gang: int, more: int, lease: int) -> None:
    """From either end: with more bundles at the beginning, or at the end."""
    atom, begins = Atom(CORE, gang, gang + more, lease, work), 0
    intervals = list[tuple[int, int, int]]()
    for steps, number in shape(work, gang + more, gang, lease):
        intervals.append((begins, begins := begins + steps, number))
    assert unsatisfied(atom, [intervals]) == ""
    assert unsatisfied(atom, [[(begins - b, begins - a, number) for a, b, number in reversed(intervals)]]) == ""
