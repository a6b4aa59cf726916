"""The class of a container on a link, and the parameters of HTB."""

from __future__ import annotations

import pytest

from agent.network import htb_parameters
from agent.network.htb_parameters import LINK, OPPORTUNISTIC, REGULAR, HtbClass, Shape
from agent.network.programs import MAX_SLOT

MBIT = 125_000
LINK_RATE = 1000 * MBIT
NOTHING, HOG = Shape(), Shape(opportunistic=True)
PROMISED = Shape(rate_bytes_per_s=300 * MBIT)
LIMITED = Shape(ceil_bytes_per_s=20 * MBIT)
LIMITED_HOG = Shape(ceil_bytes_per_s=20 * MBIT, opportunistic=True)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (NOTHING, None),
        (HOG, None),
        (PROMISED, HtbClass(7, LINK, 300 * MBIT, LINK_RATE)),
        (LIMITED, HtbClass(7, LINK, 2 * MBIT, 20 * MBIT)),
        (LIMITED_HOG, HtbClass(0x2007, LINK, 2 * MBIT, 20 * MBIT, 7)),
        (Shape(300 * MBIT, 20 * MBIT), HtbClass(7, LINK, 20 * MBIT, 20 * MBIT)),
        (Shape(300 * MBIT, opportunistic=True), None),  # it is promised nothing
        (Shape(ceil_bytes_per_s=5000 * MBIT), HtbClass(7, LINK, 2 * MBIT, LINK_RATE)),
        (Shape(ceil_bytes_per_s=1250), HtbClass(7, LINK, 1250, 1250)),
        (Shape(rate_bytes_per_s=900 * MBIT), HtbClass(7, LINK, 500 * MBIT, LINK_RATE)),  # no more is left
    ],
)
def test_the_own_class_on_a_link_of_known_rate(shape: Shape, expected: HtbClass | None) -> None:
    assert htb_parameters.own(7, shape, LINK_RATE, 500 * MBIT) == expected


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (NOTHING, None),
        (HOG, None),
        (PROMISED, None),
        (LIMITED, HtbClass(7, 0, 20 * MBIT, 20 * MBIT)),
        (LIMITED_HOG, HtbClass(0x2007, 0, 20 * MBIT, 20 * MBIT, 7)),
    ],
)
def test_the_own_class_on_a_link_of_unknown_rate(shape: Shape, expected: HtbClass | None) -> None:
    assert htb_parameters.own(7, shape, 0, 0) == expected
    assert htb_parameters.common(0) == []


@pytest.mark.parametrize(
    ("shape", "sharing", "alone"),
    [(NOTHING, REGULAR, 0), (HOG, OPPORTUNISTIC, 0), (PROMISED, 7, 0), (LIMITED, 7, 7), (LIMITED_HOG, 0x2007, 0x2007)],
)
def test_where_packets_go(shape: Shape, sharing: int, alone: int) -> None:
    assert htb_parameters.minor(7, shape, sharing=True) == sharing
    assert htb_parameters.minor(7, shape, sharing=False) == alone


@pytest.mark.parametrize(
    ("shape", "known", "unknown"),
    [(NOTHING, False, False), (HOG, True, False), (PROMISED, True, False), (LIMITED, True, True)],
)
def test_a_tree_is_there_only_for_containers_that_need_it(shape: Shape, known: bool, unknown: bool) -> None:
    assert htb_parameters.needs_tree(shape, LINK_RATE) is known
    assert htb_parameters.needs_tree(shape, 0) is unknown


def test_numbers_do_not_meet() -> None:
    slots = [minor for slot in (1, MAX_SLOT) for minor in htb_parameters.own_minors(slot)]
    common = [each.minor for each in htb_parameters.common(LINK_RATE)]
    assert len({*slots, *common}) == len(slots) + len(common)
    assert max(slots) < min(common)


def test_a_container_in_a_shared_class_is_sure_of_a_part_of_the_link_and_may_have_all_of_it() -> None:
    link, regular, second, others, opportunistic = htb_parameters.common(LINK_RATE)
    assert (link.rate_bytes_per_s, link.ceil_bytes_per_s, link.parent) == (LINK_RATE, LINK_RATE, 0)
    for each in (regular, opportunistic):
        assert (each.rate_bytes_per_s, each.ceil_bytes_per_s, each.parent) == (10 * MBIT, LINK_RATE, LINK)
    for each in (second, others):
        assert (each.rate_bytes_per_s, each.ceil_bytes_per_s, each.parent) == (2 * MBIT, LINK_RATE, LINK)
    assert [each.priority for each in (regular, second, others, opportunistic)] == [0, 1, 2, 7]


@pytest.mark.parametrize(("rank", "place"), [(0, 0), (1, 1), (2, 2), (50, 2)])
def test_containers_share_the_class_of_their_rank(rank: int, place: int) -> None:
    assert htb_parameters.minor(7, Shape(rank=rank), sharing=True) == htb_parameters.RANKED[place]
    assert htb_parameters.minor(7, Shape(rank=rank), sharing=False) == 0
    assert htb_parameters.needs_tree(Shape(rank=rank), LINK_RATE) == (rank > 0)
    assert not htb_parameters.needs_tree(Shape(rank=rank), 0)


@pytest.mark.parametrize(
    ("rate", "burst", "quantum"),
    [
        (1_250, 16_000, 1_514),  # 10 kbit/s: never less than ten full frames
        (125_000, 16_000, 1_514),  # 1 Mbit/s
        (1_250_000, 50_000, 1_514),  # 10 Mbit/s: 40 ms
        (12_500_000, 500_000, 12_500),  # 100 Mbit/s
        (25_000_000, 500_000, 25_000),  # 200 Mbit/s: 20 ms
        (125_000_000, 1_000_000, 60_000),  # 1 Gbit/s: 8 ms
        (12_500_000_000, 100_000_000, 60_000),  # 100 Gbit/s, above 32 bits
    ],
)
def test_burst_and_quantum_follow_the_rate(rate: int, burst: int, quantum: int) -> None:
    parameters = HtbClass(1, 0, rate, 2 * rate, 7).parameters()
    assert (parameters["rate"], parameters["ceil"], parameters["prio"]) == (rate, 2 * rate, 7)
    assert (parameters["burst"], parameters["quantum"]) == (burst, quantum)
    assert parameters["cburst"] == HtbClass(1, 0, 2 * rate, 2 * rate).parameters()["burst"]
