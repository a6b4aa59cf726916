"""How much one owner may have promised: at any time, and over any window."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from master.reservations.plan import Piece, Plan, Steps
from master.reservations.rdl import Bundle
from master.reservations.sharing import Instantaneous, Integral
from tests.unit.master.reservations.plan_bed import CORE

_PIECES = st.lists(
    st.builds(
        lambda start, length, number: Piece(start, start + length, number, CORE),
        st.integers(0, 30),
        st.integers(1, 12),
        st.integers(1, 5),
    ),
    max_size=6,
)


def cluster(changes: list[tuple[int, int]]) -> tuple[Steps, np.ndarray]:
    plan, plain = Plan(Bundle(cpu_cores=10.0)), np.full(200, 10.0)
    for since, cores in changes:
        plan.set_capacity(since, Bundle(cpu_cores=float(cores)))
        plain[since:] = cores
    return plan.capacity, plain


def heights(pieces: list[Piece]) -> np.ndarray:
    plain = np.zeros(200)
    for piece in pieces:
        plain[piece.start : piece.finish] += piece.number
    return plain


_CHANGES = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 20)), max_size=3)


@given(_CHANGES, _PIECES, _PIECES, st.sampled_from([0.1, 0.2, 0.5, 1.0]))
def test_at_no_time_more_than_its_share(
    changes: list[tuple[int, int]], old: list[Piece], new: list[Piece], share: float
) -> None:
    capacity, plain = cluster(changes)
    there = heights(new) > 0
    allowed = (heights([*old, *new]) <= share * plain + 1e-9)[there].all()
    assert (Instantaneous(share).too_much(capacity, "eve", Steps.sum_of([*old, *new]), new, str) == "") == allowed


@given(_CHANGES, _PIECES, _PIECES, st.sampled_from([0.05, 0.1, 0.3]), st.integers(1, 25))
def test_in_no_window_more_than_its_share(
    changes: list[tuple[int, int]], old: list[Piece], new: list[Piece], share: float, window: int
) -> None:
    capacity, plain = cluster(changes)
    ones = np.ones(window)
    used, has = np.convolve(heights([*old, *new]), ones, "valid"), np.convolve(plain, ones, "valid")
    begins, first = np.arange(len(used)), min((piece.start for piece in new), default=200)
    reaching = (begins + window > first) & (begins < max((piece.finish for piece in new), default=0))
    allowed = (used <= share * has + 1e-6 * window)[reaching].all()
    said = Integral(share, window).too_much(capacity, "eve", Steps.sum_of([*old, *new]), new, str)
    assert (said == "") == allowed, said


def test_a_window_that_ends_where_the_new_piece_starts_does_not_count() -> None:
    """Its owner may have too much there already, as the cluster has lost nodes."""
    capacity, _ = cluster([])
    new = [Piece(27, 34, 1, CORE)]
    assert Integral(0.1, 1).too_much(capacity, "eve", Steps.sum_of([Piece(18, 27, 4, CORE), *new]), new, str) == ""
    across = Steps.sum_of([Piece(18, 27, 4, CORE), *new])
    assert Integral(0.1, 2).too_much(capacity, "eve", across, new, str).startswith("eve would have 25.0% of the cpu")


def test_the_line_has_user_reservation_time_and_amount() -> None:
    capacity, _ = cluster([])
    pieces = [Piece(5, 15, 3, CORE)]
    assert Instantaneous(0.2).too_much(capacity, "eve", Steps.sum_of(pieces), pieces, str) == (
        "eve would have 30.0% of the cpu at 5, and may have 20.0%"
    )
    pieces = [Piece(5, 25, 3, CORE)]
    assert Integral(0.05, 100).too_much(capacity, "eve", Steps.sum_of(pieces), pieces, "step {}".format) == (
        "eve would have 6.0% of the cpu from step 0 to step 100, and may have 5.0%"
    )


def test_every_resource_counts() -> None:
    plan = Plan(Bundle(cpu_cores=10.0, memory_bytes=100))
    fat = [Piece(0, 5, 1, Bundle(cpu_cores=1.0, memory_bytes=60))]
    assert "60.0% of the memory" in Instantaneous(0.5).too_much(plan.capacity, "eve", Steps.sum_of(fat), fat, str)
