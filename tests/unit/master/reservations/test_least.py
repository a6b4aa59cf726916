"""A small atom gets the least that lease, gang and free capacity allow: compared with every allocation there is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from master.reservations.gree import Gree
from master.reservations.gree_l import GreeL
from master.reservations.least import least, least_anywhere, small
from master.reservations.least_solved import least_solved
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


def test_the_least_need_of_lease_and_gang() -> None:
    assert least_anywhere(3, 4, 2, 10) == 10
    assert least_anywhere(5, 5, 4, 1) == 20
    assert least_anywhere(3, 4, 1, 5) == 6
    assert not small(Atom(CORE, 1, 100, 10, 1000))


# ---------------------------------------------------------------- large atoms
# An atom too large for every allocation to be tried is given the least, too: the solver and the exact search agree.

_LARGE_ATOMS = st.builds(
    lambda gang, more, lease, work: Atom(CORE, gang, min(9, gang + more), lease, work),
    st.integers(1, 4), st.integers(4, 8), st.integers(2, 4), st.integers(1, 60),
)  # fmt: skip
_LARGE_ROOMS = st.lists(st.integers(0, 9), min_size=1, max_size=12)


@given(_LARGE_ATOMS, _LARGE_ROOMS)
@settings(max_examples=60, deadline=None)
def test_the_solver_agrees_with_the_exact_search(atom: Atom, rooms: list[int]) -> None:
    below = 10 * len(rooms) + 1
    exact = least(atom, [min(room, atom.parallelism) for room in rooms], atom.work, below)
    solved = least_solved(atom, [room + 0.5 for room in rooms], below)
    assert (None if solved is None else sum(solved)) == (None if exact is None else sum(exact))
    if solved is not None:
        assert all(height <= room for height, room in zip(solved, rooms, strict=False))
        assert unsatisfied(atom, [intervals(tuple(solved))]) == ""


#: Bundles in each step. Blocks give 30 bundle-steps here; bundles that come and go one by one give 26.
_ROOM = [4, 3, 4, 4, 4, 4, 1, 3, 1, 4, 3, 1, 1]
_LARGE = Atom(CORE, 1, 4, 6, 26)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("planner", [Gree, GreeL])
def test_every_planner_gives_a_large_atom_the_least(planner: type[Gree], early: bool) -> None:
    assert not small(_LARGE)
    assert given_by(planner, _LARGE, _ROOM, early=early) == 26


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("planner", [Gree, GreeL])
@pytest.mark.parametrize("work", [601, 700, 997])
def test_work_of_more_steps_than_the_solver_examines(planner: type[Gree], early: bool, work: int) -> None:
    """Blocks give up to five bundle-steps more here."""
    room = [3, 3, 3, 4, 4, 4, 4, 0] * 60
    assert given_by(planner, Atom(CORE, 2, 9, 6, work), room, early=early) == work


def test_a_master_that_starts_does_not_import_the_solver() -> None:
    """Scipy takes some tenths of a second and 60 MB, and most masters never plan such an atom."""
    code = "import sys, master.daemon, master.service, master.reservations.command; print('scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
