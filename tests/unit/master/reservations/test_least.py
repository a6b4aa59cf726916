"""A small atom is given the least that lease, gang and what is free allow: compared with every allocation there is."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from master.reservations.gree import Gree
from master.reservations.gree_l import GreeL
from master.reservations.least import least_anywhere, small
from master.reservations.plan import Piece, Plan
from master.reservations.rdl import Atom, Bundle
from tests.unit.master.reservations.plan_bed import CORE
from tests.unit.master.reservations.satisfied import unsatisfied

_ROOMS = st.lists(st.integers(0, 4), min_size=1, max_size=5)
_ATOMS = st.builds(
    lambda gang, more, lease, work: Atom(CORE, gang, min(4, gang + more), lease, work),
    st.integers(1, 3), st.integers(0, 3), st.integers(1, 4), st.integers(1, 14),
)  # fmt: skip


def intervals(heights: tuple[int, ...]) -> list[tuple[int, int, int]]:
    return [(step, step + 1, height) for step, height in enumerate(heights) if height]


def least_of_all(atom: Atom, rooms: list[int]) -> int | None:
    """By looking at every allocation; None: there is none."""
    sums = [
        sum(heights)
        for heights in product(*(range(min(room, atom.parallelism) + 1) for room in rooms))
        if sum(heights) >= atom.work and unsatisfied(atom, [intervals(heights)]) == ""
    ]
    return min(sums, default=None)


def given_by(planner: Callable[..., Gree], atom: Atom, rooms: list[int], *, early: bool) -> int | None:
    plan = Plan(Bundle(cpu_cores=4))
    plan.add("others", [Piece(step, step + 1, 4 - room, CORE) for step, room in enumerate(rooms) if room < 4])
    placed = planner(plan, early=early).place(atom, 0, len(rooms))
    if placed is None:
        return None
    heights = [sum(piece.number for piece in placed[0] if piece.start <= at < piece.finish) for at in range(len(rooms))]
    assert all(height <= room for height, room in zip(heights, rooms, strict=True))
    assert unsatisfied(atom, [intervals(tuple(heights))]) == ""
    return sum(heights)


@given(_ATOMS, _ROOMS, st.booleans(), st.sampled_from([Gree, GreeL]))
@settings(max_examples=200)
def test_no_allocation_gives_less(atom: Atom, rooms: list[int], early: bool, planner: type[Gree]) -> None:
    assert small(atom)
    amount = given_by(planner, atom, rooms, early=early)
    assert amount is None or amount == least_of_all(atom, rooms)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize(
    ("rooms", "atom", "amount"),
    [
        ([4, 4, 4], Atom(CORE, 3, 4, 2, 10), 10),  # three, four, three: one comes, then another one goes
        ([2, 2, 0, 2, 2, 2], Atom(CORE, 1, 4, 2, 7), 7),
        ([2, 2, 0, 2, 2], Atom(CORE, 2, 4, 1, 7), 8),  # gangs of two only
    ],
)
def test_bundles_that_come_and_go_by_turns(rooms: list[int], atom: Atom, amount: int, early: bool) -> None:
    assert least_of_all(atom, rooms) == amount
    assert given_by(Gree, atom, rooms, early=early) == amount


def test_what_lease_and_gang_need_at_least() -> None:
    assert least_anywhere(3, 4, 2, 10) == 10
    assert least_anywhere(5, 5, 4, 1) == 20
    assert least_anywhere(3, 4, 1, 5) == 6
    assert not small(Atom(CORE, 1, 100, 10, 1000))
