"""How much memory elastic executors may use: tiers, and stalled executors."""

from __future__ import annotations

import pytest

from agent.core.memory_levels import levels, raised_bytes, tiers, with_margin
from agent.core.snapshot import ContainerUse

MIB = 1 << 20
GIB = 1 << 30


def use(memory_bytes: int, cache_bytes: int = 0, stalled: float = 0.0, inactive_bytes: int = 0) -> ContainerUse:
    """``memory_bytes`` is the working set, with ``cache_bytes``; beside it the kernel has cache that it drops first."""
    return ContainerUse(
        memory_bytes=memory_bytes,
        memory_cache_bytes=cache_bytes + inactive_bytes,
        memory_unreclaimable_bytes=memory_bytes - cache_bytes,
        memory_stalled=stalled,
    )


def test_never_less_than_the_part_that_cannot_be_reclaimed() -> None:
    late = tiers(use(6 * GIB, GIB), GIB, 0.0, 8.0 * GIB)
    assert late == [5 * GIB, with_margin(5 * GIB), GIB, 0.0]
    assert levels(8.0 * GIB, [late]) == [with_margin(5 * GIB)]
    assert levels(1.0 * GIB, [late]) == [5 * GIB]
    beside_cache = tiers(use(6 * GIB, GIB, inactive_bytes=2 * GIB), GIB, 0.0, 9.0 * GIB)
    assert beside_cache == [5 * GIB, with_margin(5 * GIB), GIB, 0.0]


def test_nothing_is_above_the_memory_of_the_host() -> None:
    assert max(tiers(use(3 * GIB), 9.0 * GIB, 9.0 * GIB, 3.0 * GIB)) == 3 * GIB


def test_an_unobserved_executor_has_its_plan() -> None:
    assert tiers(None, 5.0, 0.0, 100.0) == [0.0, 0.0, 5.0, 0.0]


def test_all_have_a_tier_before_any_has_the_next() -> None:
    wants = [(1.0, 2.0, 2.0), (4.0, 4.0, 9.0)]
    assert levels(100.0, wants) == [2.0, 9.0]
    assert levels(6.0, wants) == [2.0, 4.0]
    assert levels(8.0, wants) == [2.0, 6.0]


def test_a_tier_that_does_not_fit_is_given_in_parts() -> None:
    assert levels(6.0, [(0.0, 4.0), (0.0, 8.0)]) == [2.0, 4.0]
    assert levels(0.0, [(0.0, 4.0), (3.0, 8.0)]) == [0.0, 3.0]
    assert levels(5.0, []) == []


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        (use(400 * MIB), 0.0),
        (use(500 * MIB), with_margin(500 * MIB)),  # at its level
        (use(300 * MIB, stalled=0.5, inactive_bytes=200 * MIB), with_margin(512 * MIB)),  # its cache is too small
        (use(300 * MIB, stalled=0.5), 0.0),  # the kernel makes it wait still for its use above a former level
    ],
)
def test_a_stalled_executor_wants_more(seen: ContainerUse, wanted: float) -> None:
    assert raised_bytes(seen, 512.0 * MIB, 0.0) == wanted


def test_it_keeps_its_use_and_gives_back_the_rest() -> None:
    raised = with_margin(500 * MIB)
    assert raised_bytes(use(500 * MIB), raised, raised) == raised
    assert raised_bytes(use(490 * MIB), raised, raised) == raised
    assert raised_bytes(use(300 * MIB), raised, raised) == with_margin(300 * MIB)
    assert raised_bytes(use(300 * MIB), None, raised) == raised
