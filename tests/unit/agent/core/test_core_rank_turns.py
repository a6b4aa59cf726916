"""Who is always behind has a turn as the first: a short one, after a long wait, and if there is anything to do."""

from __future__ import annotations

import pytest

from agent.core import events as e
from penstock.wire.master_api import SetPriority
from tests.unit.agent.core.ranks_bed import Bed


def test_who_is_always_behind_has_a_turn_and_then_no_more() -> None:
    bed = Bed(job_wait_max_s=30.0)
    first, last = bed.launch(), bed.launch()
    job = bed.register(bed.connect(first), priority=1.0)
    turns = []
    for second in range(100):
        bed.sample(**{first: 0.001})
        if bed.order()[0] == last:
            turns.append(second)
    assert len(turns) == 3 and turns[0] == pytest.approx(30, abs=2)
    assert bed.node.ranks.standings[job].rank == 0


def test_a_turn_lasts_until_the_next_sample_whatever_is_ranked_meanwhile() -> None:
    bed = Bed(has_master=True, job_wait_max_s=5.0)
    first, last = bed.launch(), bed.launch()
    job = bed.register(bed.connect(first), priority=1.0)
    while bed.order()[0] != last:
        bed.sample(**{first: 0.001})
    for number in range(1, 6):
        bed.now += 0.1
        bed.send(e.Decided(number, [SetPriority(job=job, priority=2.0 + number)], 0.0))
        assert bed.order()[0] == last
    bed.sample(0.5)
    assert bed.order()[0] == first


def test_turns_take_a_tenth_of_the_time_at_most() -> None:
    bed = Bed(job_wait_max_s=5.0)
    first = bed.launch()
    bed.register(bed.connect(first), priority=1.0)
    for _ in range(40):
        bed.launch()
    others = 0
    for _ in range(200):
        bed.sample(**{first: 0.001})
        others += bed.order()[0] != first
    assert 15 <= others <= 21


def test_who_only_sleeps_has_no_turn_and_nothing_is_told_the_kernel() -> None:
    bed = Bed(job_wait_max_s=5.0)
    first = bed.launch()
    bed.register(bed.connect(first), priority=1.0)
    for _ in range(3):
        bed.launch()
    bed.sample()
    order, told = bed.order(), len(bed.done)
    for _ in range(30):
        bed.sample()
    assert bed.order() == order and len(bed.done) == told
    bed.sample(**{first: 0.001})
    assert bed.order()[0] != first, "now that the first runs, it is somebody else's turn"
