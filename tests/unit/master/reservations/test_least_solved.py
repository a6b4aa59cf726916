"""An atom too large for every allocation to be tried is given the least, too: the solver and the exact search agree."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from master.reservations.gree import Gree
from master.reservations.gree_l import GreeL
from master.reservations.least import least, small
from master.reservations.least_solved import least_solved
from master.reservations.rdl import Atom
from tests.unit.master.reservations.plan_bed import CORE
from tests.unit.master.reservations.satisfied import unsatisfied
from tests.unit.master.reservations.test_least import given_by, intervals

_ATOMS = st.builds(
    lambda gang, more, lease, work: Atom(CORE, gang, min(9, gang + more), lease, work),
    st.integers(1, 4), st.integers(4, 8), st.integers(2, 4), st.integers(1, 60),
)  # fmt: skip
_ROOMS = st.lists(st.integers(0, 9), min_size=1, max_size=12)


@given(_ATOMS, _ROOMS)
@settings(max_examples=60, deadline=None)
def test_the_solver_gives_what_the_exact_search_gives(atom: Atom, rooms: list[int]) -> None:
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
