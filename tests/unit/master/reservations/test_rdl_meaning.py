"""The checker, the normal form and the search for infeasibility, compared with an enumeration of the language's
meaning.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from master.reservations.rdl import All, Any, Atom, Bundle, Expression, Order, Window, atoms_of, infeasible, normalized
from tests.unit.master.reservations.rdl_strategies import STEPS, B, expressions, given_in_all, intervals
from tests.unit.master.reservations.satisfied import unsatisfied

heights = st.tuples(*[st.integers(0, 3)] * STEPS)


@given(expressions)
@settings(max_examples=150)
def test_the_normal_form_means_the_same(expression: Expression) -> None:
    assert given_in_all(normalized(expression)) == given_in_all(expression)


@given(expressions)
@settings(max_examples=100)
def test_the_normal_form_of_a_normal_form_is_itself(expression: Expression) -> None:
    once = normalized(expression)
    assert normalized(once) == once


def test_atoms_that_become_equal_become_one_too() -> None:
    half, whole = Atom(B, 1, 1, 1, 1, None, None), Atom(B, 1, 2, 1, 2, None, None)
    assert normalized(All((half, half, whole))) == Atom(B, 1, 4, 1, 4, None, None)


@given(expressions, st.data())
@settings(max_examples=150)
def test_the_checker_is_satisfied_with_allocations_and_nothing_else(
    expression: Expression, data: st.DataObject
) -> None:
    parts = [data.draw(heights) for _ in atoms_of(expression)]
    said = unsatisfied(expression, [intervals(part) for part in parts])
    assert (said == "") == _by_words(expression, list(parts), 0, STEPS)[0], said


@given(expressions)
@settings(max_examples=150)
def test_a_request_called_infeasible_is_infeasible(expression: Expression) -> None:
    bounded = Window(expression, 0, STEPS)
    if infeasible(bounded):
        assert given_in_all(bounded) == set()


def _by_words(
    expression: Expression, left: list[tuple[int, ...]], start: int, finish: int
) -> tuple[bool, tuple[int, int] | None]:
    """Whether heights for each atom satisfy it, and from when to when something is given."""
    match expression:
        case Atom():
            mine = left.pop(0)
            within = [step for step, height in enumerate(mine) if height]
            extent = (within[0], within[-1] + 1) if within else None
            return mine in given_in_all(expression, start, finish), extent
        case Window(part, a, b):
            return _by_words(part, left, max(start, a), min(finish, b))
        case Any(parts) | All(parts) | Order(parts):
            found = [_by_words(part, left, start, finish) for part in parts]
            extents = [extent for _, extent in found if extent is not None]
            hull = (min(a for a, _ in extents), max(b for _, b in extents)) if extents else None
            if isinstance(expression, Any):
                given = [good for good, extent in found if extent is not None]
                return (any(given or [good for good, _ in found]) and len(given) < 2), hull
            good = all(good for good, _ in found)
            if isinstance(expression, Order):
                pairs = list(pairwise(extents))
                good &= all(b[0] == a[1] if expression.no_gap else b[0] >= a[1] for a, b in pairs)
            return good, hull


def test_nested_operators_become_one() -> None:
    a, b, c, d = (Atom(B, 1, n, 1, 9) for n in (1, 2, 3, 4))
    assert normalized(Order((Order((a, b)), Order((c, d))))) == Order((a, b, c, d))
    assert normalized(All((All((a,)), All((b, All((c, d))))))) == All((a, b, c, d))
    mixed = Order((Order((a, b), no_gap=True), c))
    assert normalized(mixed) == mixed


def test_equal_atoms_are_unified_where_that_changes_nothing() -> None:
    assert normalized(All((Atom(B, 1, 1, 1, 1),) * 2)) == Atom(B, 1, 2, 1, 2)  # Rayon's own example
    gang = Atom(B, 2, 2, 1, 4)
    assert normalized(All((gang, gang))) == All((gang, gang))
    other = Atom(Bundle(memory_bytes=5), 1, 1, 1, 1)
    assert normalized(All((Atom(B, 1, 1, 1, 1), other))) == All((Atom(B, 1, 1, 1, 1), other))


def test_windows_go_down_to_the_atoms() -> None:
    a, b = Atom(B, 1, 1, 1, 1), Atom(B, 1, 2, 1, 1)
    inner = Window(All((a, Window(b, 3, 30))), 5, 20)
    assert normalized(Window(inner, 0, 10)) == All((Atom(B, 1, 1, 1, 1, 5, 10), Atom(B, 1, 2, 1, 1, 5, 10)))


def test_choices_go_to_the_top_the_preferred_ones_first() -> None:
    a, b, c = (Atom(B, 1, n, 1, 9) for n in (1, 2, 3))
    assert normalized(Order((Any((a, b)), c))) == Any((Order((a, c)), Order((b, c))))
    many = All(tuple(Any((Atom(B, 1, 1, 1, n), Atom(B, 1, 2, 1, n))) for n in range(1, 11)))  # 1024 of them
    assert normalized(many) == many


def test_an_infeasible_request_has_its_reason() -> None:
    assert "10 bundle-steps at 2 at once takes 5 steps" in infeasible(Window(Atom(B, 1, 2, 1, 10), 0, 4))
    assert "its lease takes 9 steps" in infeasible(Window(Atom(B, 1, 2, 9, 10), 0, 8))
    ordered = Window(Order((Atom(B, 1, 1, 1, 3), Atom(B, 1, 1, 1, 3))), 0, 5)
    assert "from step 3 to its end at step 5" in infeasible(ordered)
    assert infeasible(Window(Atom(B, 1, 1, 1, 3), 0, 5), now=3)
    capacity = Bundle(cpu_cores=4.0, memory_bytes=8)
    assert "5 bundles at once want 5 cores; the cluster has 4 cores" in infeasible(Atom(B, 5, 9, 1, 9), 0, capacity)
    assert infeasible(Window(Atom(B, 1, 9, 1, 9), 0, 3), 0, capacity) == ""
    assert "9 bundle-steps at 4 at once takes 3" in infeasible(Window(Atom(B, 1, 9, 1, 9), 0, 2), 0, capacity)
    assert "; or " in infeasible(Any((Window(Atom(B, 1, 1, 1, 3), 0, 2), Window(Atom(B, 1, 1, 1, 4), 0, 2))))
