"""Planning as a program: its allocation equals the request, and it finds some that no greedy planner can."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from master.reservations.gree import Gree, Placed
from master.reservations.gree_l import GreeL
from master.reservations.measures import Measures, measure
from master.reservations.milp import Solved, solve
from master.reservations.plan import Plan
from master.reservations.rdl import Atom, Bundle, Expression, Window, infeasible, normalized, parse
from tests.unit.master.reservations.plan_bed import CORE, flat, wrong
from tests.unit.master.reservations.rdl_strategies import expressions
from tests.unit.master.reservations.test_gree import cluster


def asked(*texts: str) -> dict[str, Expression]:
    return {f"r{n}": normalized(parse(text, bundles={"b": CORE}).expression) for n, text in enumerate(texts)}


def test_a_request_alone_is_placed_without_ups_and_downs() -> None:
    requests = asked("window(atom(b,1,10,4,40),0,20)")
    solved = solve(cluster(10), requests, 20)
    assert solved.optimal
    placed = solved.placed["r0"]
    assert placed is not None
    assert wrong(requests["r0"], placed) == ""
    assert len(flat(placed)) == 1


def test_it_moves_reservations_that_greedy_planners_leave_in_the_way() -> None:
    """The first may be anywhere; placed late, it is in the way of the second, which may not."""
    requests = asked("window(atom(b,4,4,5,20),0,10)", "window(atom(b,4,4,5,20),5,10)")
    plan = cluster(4)
    greedy = Gree(plan)
    assert greedy.promise("first", requests["r0"], 0, 10) is not None
    assert greedy.promise("second", requests["r1"], 0, 10) is None
    solved = solve(cluster(4), requests, 10)
    assert all(placed is not None for placed in solved.placed.values())


def test_of_requests_that_do_not_fit_together_as_few_as_possible_are_rejected() -> None:
    requests = asked(*["window(atom(b,1,1,5,5),0,5)"] * 3, "window(atom(b,2,2,5,10),0,5)")
    solved = solve(cluster(3), requests, 5)
    assert [name for name, placed in solved.placed.items() if placed is None] == ["r3"]


def test_orders_and_gaps() -> None:
    requests = asked("window(order(atom(b,2,4,2,8),atom(b,1,4,3,6),no_gap),0,12)")
    solved = solve(cluster(4, (3, 5, 4)), requests, 12)
    placed = solved.placed["r0"]
    assert placed is not None
    assert wrong(requests["r0"], placed) == ""


def test_slots_of_several_steps_keep_the_language() -> None:
    requests = asked("window(order(atom(b,1,10,24,240),any(atom(b,30,30,5,60),atom(b,2,9,6,60))),3,80)")
    solved = solve(cluster(12), requests, 80, quantum=5)
    placed = solved.placed["r0"]
    assert placed is not None
    assert wrong(requests["r0"], placed, quantum=5) == ""


def gangs(seed: int, jobs: int = 6) -> dict[str, Expression]:
    """Gangs that two nodes of four cores have not room for, and atoms that may be spread."""
    chance, found = Random(seed), dict[str, Expression]()
    for number in range(jobs):
        height, length = chance.randint(2, 6), chance.randint(3, 8)
        start = chance.randint(0, 24 - length)
        finish = min(24, start + length + chance.randint(0, 8))
        gang = height if number % 2 else 1
        found[f"r{number}"] = Atom(CORE, gang, height, length if number % 2 else 2, height * length, start, finish)
    return found


def judged(requests: dict[str, Expression], placed: Mapping[str, Placed | None], cores: float) -> Measures:
    plan = Plan(Bundle(cpu_cores=cores))
    for name, given_ in placed.items():
        if given_ is not None:
            assert wrong(requests[name], given_) == ""
            plan.add(name, flat(given_))
    assert plan.overcommitted() is None
    return measure(requests, placed, plan, 24)


def cost(of: Measures) -> tuple[int, float, float]:
    """Return a figure that is lower where the allocation is better."""
    return -of.accepted, -round(of.acceptance, 9), round(of.preemption, 9)


@pytest.mark.parametrize("seed", range(8))
def test_it_is_never_worse_than_a_greedy_planner(seed: int) -> None:
    requests = gangs(seed)
    solved = solve(cluster(8), requests, 24)
    assert solved.optimal
    ours = cost(judged(requests, solved.placed, 8))
    for planner in (Gree, GreeL):
        by = planner(cluster(8))
        assert ours <= cost(
            judged(requests, {name: by.promise(name, each, 0, 24) for name, each in requests.items()}, 8)
        )


def test_least_preemption_is_found_and_not_only_come_near_to() -> None:
    """Spread over all of its time a request steps down by one core, independent of others."""
    requests = asked(*(f"window(atom(b,1,8,1,{20 - n}),{n},20)" for n in range(6)))
    solved = solve(cluster(8), requests, 20)
    assert solved.optimal
    assert judged(requests, solved.placed, 8).preemption == pytest.approx(6 / 8)


def test_when_time_is_up_the_result_is_a_greedy_planner_s() -> None:
    requests = gangs(3, jobs=40)
    solved = solve(cluster(8), requests, 24, time_limit_s=1e-6)
    assert not solved.optimal
    by = Gree(cluster(8))
    placed = {name: by.promise(name, each, 0, 24) for name, each in requests.items()}
    assert cost(judged(requests, solved.placed, 8)) <= cost(judged(requests, placed, 8))


def test_the_larger_of_two_requests_is_accepted() -> None:
    requests = asked("window(atom(b,4,4,5,20),0,5)", "window(atom(b,8,8,5,40),0,5)")
    assert solve(cluster(8), requests, 5).placed["r0"] is None


def test_no_more_than_the_work_is_given_where_that_takes_no_preemption() -> None:
    placed = solve(cluster(8), asked("window(atom(b,1,8,4,17),0,20)"), 20).placed["r0"]
    assert placed is not None
    assert sum((piece.finish - piece.start) * piece.number for piece in flat(placed)) == 17


def test_no_requests_are_no_program() -> None:
    assert solve(cluster(8), {}, 20) == Solved({}, optimal=True)


@given(st.lists(expressions, min_size=1, max_size=3), st.integers(1, 5))
@settings(max_examples=60)
def test_its_allocation_equals_the_request_and_places_no_less_than_gree(parts: list[Expression], cores: int) -> None:
    requests = {f"r{n}": normalized(Window(part, 0, 6)) for n, part in enumerate(parts)}
    capacity = Bundle(cpu_cores=float(cores))
    solved = solve(Plan(capacity), requests, 6)
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
