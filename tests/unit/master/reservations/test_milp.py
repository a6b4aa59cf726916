"""Planning as a program: what it places is what was asked for, and it places what no greedy planner can."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("scipy")

from master.reservations.gree import Gree
from master.reservations.milp import solve
from master.reservations.plan import Plan
from master.reservations.rdl import Bundle, Expression, Window, infeasible, normalized, parse
from tests.unit.master.reservations.plan_bed import CORE, flat, wrong
from tests.unit.master.reservations.rdl_strategies import expressions
from tests.unit.master.reservations.test_gree import cluster


def asked(*texts: str) -> dict[str, Expression]:
    return {f"r{n}": normalized(parse(text, bundles={"b": CORE}).expression) for n, text in enumerate(texts)}


def test_a_request_alone_is_placed_without_ups_and_downs() -> None:
    requests = asked("window(atom(b,1,10,4,40),0,20)")
    solved = solve(cluster(10), requests, 0, 20)
    assert solved is not None
    assert solved.optimal
    placed = solved.placed["r0"]
    assert placed is not None
    assert wrong(requests["r0"], placed) == ""
    assert len(flat(placed)) == 1


def test_it_moves_what_greedy_planners_leave_in_the_way() -> None:
    """The first may be anywhere; placed late, it is in the way of the second, which may not."""
    requests = asked("window(atom(b,4,4,5,20),0,10)", "window(atom(b,4,4,5,20),5,10)")
    plan = cluster(4)
    greedy = Gree(plan)
    assert greedy.promise("first", requests["r0"], 0, 10) is not None
    assert greedy.promise("second", requests["r1"], 0, 10) is None
    solved = solve(cluster(4), requests, 0, 10)
    assert solved is not None
    assert all(placed is not None for placed in solved.placed.values())


def test_what_does_not_fit_together_is_rejected_as_little_as_can_be() -> None:
    requests = asked(*["window(atom(b,1,1,5,5),0,5)"] * 3, "window(atom(b,2,2,5,10),0,5)")
    solved = solve(cluster(3), requests, 0, 5)
    assert solved is not None
    assert [name for name, placed in solved.placed.items() if placed is None] == ["r3"]


def test_orders_and_gaps() -> None:
    requests = asked("window(order(atom(b,2,4,2,8),atom(b,1,4,3,6),no_gap),0,12)")
    solved = solve(cluster(4, (3, 5, 4)), requests, 0, 12)
    assert solved is not None
    placed = solved.placed["r0"]
    assert placed is not None
    assert wrong(requests["r0"], placed) == ""


def test_slots_of_several_steps_keep_the_language() -> None:
    requests = asked("window(order(atom(b,1,10,24,240),any(atom(b,30,30,5,60),atom(b,2,9,6,60))),3,80)")
    solved = solve(cluster(12), requests, 0, 80, quantum=5)
    assert solved is not None
    placed = solved.placed["r0"]
    assert placed is not None
    assert wrong(requests["r0"], placed, quantum=5) == ""


@given(st.lists(expressions, min_size=1, max_size=3), st.integers(1, 5))
@settings(max_examples=60)
def test_it_places_what_was_asked_for_and_no_less_than_gree(parts: list[Expression], cores: int) -> None:
    requests = {f"r{n}": normalized(Window(part, 0, 6)) for n, part in enumerate(parts)}
    capacity = Bundle(cpu_cores=float(cores))
    solved = solve(Plan(capacity), requests, 0, 6)
    assert solved is not None
    assert solved.optimal
    plan, greedy_plan = Plan(capacity), Plan(capacity)
    greedy = Gree(greedy_plan)
    for name, expression in requests.items():
        placed = solved.placed[name]
        greedy.promise(name, expression, 0, 6)
        if placed is not None:
            assert wrong(expression, placed) == ""
            plan.add(name, flat(placed))
            assert infeasible(expression) == ""
    assert plan.overcommitted() is None
    assert len(plan.reservations()) >= len(greedy_plan.reservations())
