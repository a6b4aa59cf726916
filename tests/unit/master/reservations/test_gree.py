"""GREE: its allocations by example; that each equals its request, by property."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from master.reservations.gree import Gree
from master.reservations.gree_l import GreeL
from master.reservations.plan import Piece, Plan
from master.reservations.rdl import All, Any, Atom, Bundle, Expression, Order, Window, infeasible, normalized, parse
from tests.unit.master.reservations.plan_bed import CORE, flat, rebuilt, wrong
from tests.unit.master.reservations.rdl_strategies import _nested

FIG_9 = "window(order(atom(b,1,10,240,2400), atom(b,1,20,120,2400), atom(b,1,15,120,1800)),0,800)"


def place(plan: Plan, text: str, *, early: bool = False) -> list[tuple[int, int, int]] | None:
    return placed_by(Gree(plan, early=early), text)


def placed_by(planner: Gree | GreeL, text: str) -> list[tuple[int, int, int]] | None:
    """From left to right: (start, finish, bundles)."""
    expression = normalized(parse(text, bundles={"b": CORE}).expression)
    placed = planner.place(expression, 0, 1000)
    if placed is None:
        return None
    assert wrong(expression, placed) == ""
    return sorted((piece.start, piece.finish, piece.number) for piece in flat(placed))


def cluster(cores: float, *taken: tuple[int, int, int]) -> Plan:
    plan = Plan(Bundle(cpu_cores=cores))
    plan.add("others", [Piece(start, finish, number, CORE) for start, finish, number in taken])
    return plan


LATE, EARLY = False, True


@pytest.mark.parametrize(
    ("cores", "taken", "text", "early", "expected"),
    [
        # The paper's own example.
        (100, [], FIG_9, LATE, [(320, 560, 10), (560, 680, 20), (680, 800, 15)]),
        (100, [], FIG_9, EARLY, [(0, 240, 10), (240, 360, 20), (360, 480, 15)]),
        # As tall and as late as there is room.
        (10, [(10, 20, 7)], "window(atom(b,1,10,1,60),0,20)", LATE, [(7, 10, 10), (10, 20, 3)]),
        (10, [(10, 20, 7)], "window(atom(b,1,10,1,60),8,30)", EARLY, [(8, 10, 10), (10, 20, 3), (20, 21, 10)]),
        # No more than the work is given.
        (100, [], "window(atom(b,1,100,1,101),0,10)", LATE, [(8, 9, 1), (9, 10, 100)]),
        (100, [], "window(atom(b,1,100,1,101),0,10)", EARLY, [(0, 1, 100), (1, 2, 1)]),
        (100, [], "window(atom(b,1,100,10,101),0,11)", LATE, [(0, 1, 1), (1, 11, 10)]),
        (100, [(3, 5, 98)], "window(atom(b,1,100,1,260),0,10)", LATE, [(7, 8, 60), (8, 10, 100)]),
        # The need of a lease or a gang is more than the work; here a lease is all the time there is.
        (100, [], "window(atom(b,1,100,10,101),0,10)", LATE, [(0, 10, 11)]),
        (100, [], "window(atom(b,3,4,1,5),0,10)", LATE, [(8, 10, 3)]),
        (100, [], "window(atom(b,3,4,1,7),0,10)", LATE, [(8, 9, 3), (9, 10, 4)]),
        (100, [], "window(atom(b,5,5,4,1),0,10)", LATE, [(6, 10, 5)]),
        # An atom that gives more than it must is placed lower or off the edge.
        (4, [(1, 2, 2), (3, 4, 2), (4, 6, 4)], "window(atom(b,2,4,2,6),0,6)", LATE, [(1, 4, 2)]),
        (4, [(1, 2, 2), (3, 4, 2), (4, 6, 4)], "window(atom(b,2,4,2,6),0,6)", EARLY, [(0, 3, 2)]),
        (4, [(1, 2, 4), (2, 3, 1)], "window(atom(b,2,4,1,5),0,3)", LATE, [(0, 1, 2), (2, 3, 3)]),
        # A lease is as high as its lowest point. Then the search goes on to the left, also upon placed atoms.
        (10, [(14, 16, 6)], "window(atom(b,1,10,8,80),0,20)", LATE, [(6, 14, 6), (12, 20, 4)]),
        # A gang that does not fit goes further left.
        (10, [(12, 18, 6)], "window(atom(b,5,10,4,20),0,20)", LATE, [(8, 12, 5)]),
        (10, [(4, 18, 6)], "window(atom(b,5,10,5,20),0,20)", LATE, None),
        # Order leaves gaps where it must and none where it may not.
        (10, [(14, 18, 10)], "window(order(atom(b,1,5,2,10),atom(b,1,5,2,10)),0,20)", LATE, [(12, 14, 5), (18, 20, 5)]),
        (10, [(14, 18, 10)], "window(order(atom(b,1,5,2,10),atom(b,1,5,2,10),no_gap),0,20)", LATE,
         [(10, 12, 5), (12, 14, 5)]),
        # The first alternative that fits is taken.
        (10, [], "window(any(atom(b,9,9,2,18), atom(b,3,3,6,18)),0,20)", LATE, [(18, 20, 9)]),
        (8, [], "window(any(atom(b,9,9,2,18), atom(b,3,3,6,18)),0,20)", LATE, [(14, 20, 3)]),
        (2, [], "window(any(atom(b,9,9,2,18), atom(b,3,3,6,18)),0,20)", LATE, None),
    ],
)  # fmt: skip
def test_where_an_atom_is_placed(
    cores: float, taken: list[tuple[int, int, int]], text: str, early: bool, expected: list[tuple[int, int, int]] | None
) -> None:
    assert place(cluster(cores, *taken), text, early=early) == expected


@pytest.mark.parametrize("early", [False, True])
def test_an_order_takes_more_than_its_work_where_that_saves_the_time_it_needs(early: bool) -> None:
    text = "window(order(atom(b,1,100,10,101),atom(b,1,100,10,101)),0,{})"
    assert place(cluster(100), text.format(20), early=early) == [(0, 10, 11), (10, 20, 11)]
    assert sum((b - a) * n for a, b, n in place(cluster(100), text.format(22), early=early) or []) == 202


def test_every_dimension_binds() -> None:
    plan = Plan(Bundle(cpu_cores=10, memory_bytes=100))
    big = Atom(Bundle(cpu_cores=1, memory_bytes=40), 1, 10, 1, 4, 0, 10)
    placed = Gree(plan).place(big, 0, 10)
    assert placed == [[Piece(8, 10, 2, big.bundle)]]


@pytest.mark.parametrize("early", [False, True])
def test_a_request_that_does_not_fit_leaves_the_plan_unchanged(early: bool) -> None:
    plan = cluster(10, (0, 9, 9))
    before = [list(row) for row in plan.free.rows]
    assert place(plan, "window(all(atom(b,1,1,1,5),atom(b,10,10,5,50)),0,10)", early=early) is None
    assert plan.free.rows == before


# ---------------------------------------------------------------- any stream of requests

_BUNDLES = st.sampled_from([CORE, Bundle(cpu_cores=0.3, memory_bytes=3), Bundle(memory_bytes=2, disk_bytes_per_s=1)])
_ATOMS = st.builds(
    lambda bundle, gang, more, lease, work: Atom(bundle, gang, gang + more, lease, work),
    _BUNDLES, st.integers(1, 4), st.integers(0, 6), st.integers(1, 6), st.integers(0, 40),
)  # fmt: skip
_EXPRESSIONS = st.recursive(_ATOMS, _nested, max_leaves=6)
_ASKED = st.builds(
    lambda part, start, length: Window(part, start, start + length),
    _EXPRESSIONS,
    st.integers(0, 40),
    st.integers(1, 40),
)
_CAPACITY = st.builds(
    lambda cores, memory, disk: Bundle(cpu_cores=float(cores), memory_bytes=memory, disk_bytes_per_s=disk),
    st.integers(0, 8), st.integers(0, 20), st.integers(0, 6),
)  # fmt: skip
_ACTS = st.one_of(
    st.tuples(st.just("ask"), _ASKED), st.tuples(st.just("ask"), _ASKED),
    st.tuples(st.just("remove"), st.integers(0, 9)),
    st.tuples(st.just("capacity"), st.tuples(st.integers(0, 60), _CAPACITY)),
)  # fmt: skip


@given(_CAPACITY, st.lists(_ACTS, max_size=14), st.booleans())
@settings(max_examples=70)
def test_an_accepted_allocation_equals_its_request_and_fits(
    capacity: Bundle, acts: list[tuple[str, object]], early: bool
) -> None:
    plan, asked, capacities = Plan(capacity), dict[str, Expression](), [(0, capacity)]
    planner = Gree(plan, early=early)
    for number, (kind, what) in enumerate(acts):
        if kind == "remove":
            if asked:
                plan.remove(gone := sorted(asked)[int(str(what)) % len(asked)])
                del asked[gone]
        elif kind == "capacity":
            assert isinstance(what, tuple)
            since, bundle = what
            more = plan.overcommitted() is None
            before = [list(row) for row in plan.free.rows]
            plan.set_capacity(since, bundle)
            if more and plan.overcommitted() is not None:  # a promise is kept, here
                del before
                plan.set_capacity(since, Bundle(cpu_cores=99, memory_bytes=999, disk_bytes_per_s=99))
                bundle = Bundle(cpu_cores=99, memory_bytes=999, disk_bytes_per_s=99)
            capacities.append((since, bundle))
        else:
            assert isinstance(what, Window)
            expression = normalized(what)
            placed = planner.place(expression, 0, 100)
            if placed is not None:
                assert wrong(expression, placed) == ""
                plan.add(name := f"r{number:02}", flat(placed))
                asked[name] = expression
                assert plan.overcommitted() is None
                assert infeasible(expression) == ""
    again = rebuilt(plan, capacities)
    assert [again.free.at(step) for step in range(100)] == [pytest.approx(plan.free.at(step)) for step in range(100)]


@given(_ASKED)
@settings(max_examples=100)
def test_an_empty_cluster_takes_each_atom_that_is_feasible(asked: Window) -> None:
    """With others in the way, or parts that want the same, it may miss a solution: no backtracking."""
    expression = normalized(asked)
    plan = Plan(Bundle(cpu_cores=1e6, memory_bytes=10**9, disk_bytes_per_s=10**9))
    if isinstance(expression, Atom | All) and not infeasible(expression):
        assert Gree(plan).place(expression, 0, 100) is not None
    if isinstance(expression, Any) and not infeasible(expression):
        assert any(isinstance(part, Order) for part in expression.parts) or Gree(plan).place(expression, 0, 100)


def test_a_promise_equals_a_placement() -> None:
    expression = normalized(parse(FIG_9, bundles={"b": CORE}).expression)
    one, other = cluster(100), cluster(100)
    placed = Gree(one).promise("r", expression, 0, 1000)
    assert placed == Gree(other).place(expression, 0, 1000)
    other.add("r", flat(placed or []))
    assert one.reservations() == other.reservations()
    assert one.free.rows == other.free.rows
    assert (
        Gree(one).promise(
            "again", normalized(parse("window(atom(b,99,99,1,99),0,700)", bundles={"b": CORE}).expression), 600, 700
        )
        is None
    )
    assert "again" not in one.reservations()
