"""GREE-L: flat where GREE is tall; its allocation equals the request."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from master.reservations.gree import Gree
from master.reservations.gree_l import GreeL
from master.reservations.plan import Plan
from master.reservations.rdl import Bundle, Window, normalized, parse
from tests.unit.master.reservations.plan_bed import CORE, flat, wrong
from tests.unit.master.reservations.test_gree import _ASKED, _CAPACITY, EARLY, FIG_9, LATE, cluster, placed_by


def place(plan: Plan, text: str, *, early: bool = False, fallback: bool = True) -> list[tuple[int, int, int]] | None:
    return placed_by(GreeL(plan, early=early, fallback=fallback), text)


@pytest.mark.parametrize(
    ("cores", "taken", "text", "early", "expected"),
    [
        # One height from the beginning to the end.
        (100, [], "window(atom(b,1,10,1,60),0,20)", LATE, [(0, 20, 3)]),
        (100, [], "window(atom(b,1,10,5,61),0,20)", LATE, [(4, 5, 1), (5, 20, 4)]),
        (100, [], "window(atom(b,6,10,5,60),0,20)", EARLY, [(0, 10, 6)]),
        # No higher than it must be where there is less room.
        (10, [(10, 20, 8)], "window(atom(b,1,10,1,60),0,20)", LATE, [(0, 10, 4), (10, 20, 2)]),
        (10, [(10, 20, 8)], "window(atom(b,1,10,1,65),0,20)", LATE, [(0, 5, 4), (5, 10, 5), (10, 20, 2)]),
        # No more than the work where not even the lowest height needs all steps.
        (1, [(99, 100, 1)], "window(atom(b,1,1,1,10),0,100)", LATE, [(89, 99, 1)]),
        (1, [(0, 1, 1)], "window(atom(b,1,1,1,10),0,100)", EARLY, [(1, 11, 1)]),
        (9, [(9, 10, 7)], "window(atom(b,3,4,1,7),0,10)", LATE, [(7, 8, 3), (8, 9, 4)]),
        (3, [(9, 10, 3)], "window(atom(b,3,4,1,7),0,10)", LATE, [(6, 9, 3)]),
        # Parts of an order share the time by their needs: 240, 120 and 120 steps at least, of 800: an interval of 200,
        # then the rest in the same proportion.
        (100, [], FIG_9, LATE, [(0, 400, 6), (400, 600, 12), (600, 800, 9)]),
    ],
)
def test_where_an_atom_is_placed(
    cores: float, taken: list[tuple[int, int, int]], text: str, early: bool, expected: list[tuple[int, int, int]]
) -> None:
    assert place(cluster(cores, *taken), text, early=early) == expected


def test_a_part_that_does_not_fit_into_its_interval_is_placed_as_by_gree_or_rejected() -> None:
    text = "window(order(atom(b,1,4,5,20), atom(b,1,4,5,20)),0,20)"
    busy = cluster(4, (9, 20, 4))
    assert place(busy, text, fallback=False) is None
    assert place(busy, text) is None  # the second takes [4, 9), and five steps before are not left
    roomy = cluster(4, (11, 20, 4))
    assert place(roomy, text, fallback=False) is None
    assert place(roomy, text) == [(1, 6, 4), (6, 11, 4)]


@given(_CAPACITY, st.lists(_ASKED, max_size=8), st.booleans(), st.booleans())
@settings(max_examples=50)
def test_an_accepted_allocation_equals_its_request_and_fits(
    capacity: Bundle, asked: list[Window], early: bool, fallback: bool
) -> None:
    plan = Plan(capacity)
    planner = GreeL(plan, early=early, fallback=fallback)
    for number, each in enumerate(asked):
        before = [list(plan.free.at(step)) for step in range(100)]
        expression = normalized(each)
        placed = planner.place(expression, 0, 100)
        assert [plan.free.at(step) for step in range(100)] == [pytest.approx(row) for row in before]
        if placed is not None:
            assert wrong(expression, placed) == ""
            plan.add(f"r{number}", flat(placed))
            assert plan.overcommitted() is None


def test_flatter_than_gree() -> None:
    """The sum of all ups and downs of the promises: Rayon's preemption."""
    ups = {}
    for planner in (Gree, GreeL):
        plan = Plan(Bundle(cpu_cores=100.0))
        for number in range(20):
            text = f"window(atom(b,1,20,1,{200 + 10 * number}),{10 * number},{100 + 20 * number})"
            placed = planner(plan).place(normalized(parse(text, bundles={"b": CORE}).expression), 0, 1000)
            assert placed is not None
            plan.add(f"r{number}", flat(placed))
        heights = [100 - plan.free.at(step)[0] for step in range(600)]
        ups[planner] = sum(abs(b - a) for a, b in pairwise(heights))
    assert ups[GreeL] < 0.7 * ups[Gree]
