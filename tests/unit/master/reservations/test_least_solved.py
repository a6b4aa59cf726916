"""An atom too large for every allocation to be tried is given the least, too: a solver and the exact search agree."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from master.config import MasterConfig
from master.reservations.gree import Gree
from master.reservations.gree_l import GreeL
from master.reservations.least import least, small
from master.reservations.least_solved import least_solved
from master.reservations.rdl import Atom, unsatisfied
from penstock import extras
from tests.unit.master.reservations.plan_bed import CORE
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
def test_planners_ask_it(planner: type[Gree], early: bool) -> None:
    assert not small(_LARGE)
    assert given_by(partial(planner, solver=least_solved), _LARGE, _ROOM, early=early) == 26


def test_without_a_solver_large_atoms_get_blocks() -> None:
    assert given_by(Gree, _LARGE, _ROOM, early=False) == 30


@pytest.mark.parametrize(("installed", "solver"), [(True, least_solved), (False, None)])
def test_a_master_asks_it_where_scipy_is_installed(
    installed: bool, solver: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "is_installed", lambda module: installed or module != "scipy")
    assert MasterConfig().reservation_settings().solver is solver
