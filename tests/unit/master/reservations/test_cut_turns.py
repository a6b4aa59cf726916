"""Turns of a recurring reservation that a loss of capacity cut, after its last turn has begun."""

from __future__ import annotations

from master.reservations.rdl import Bundle
from tests.unit.master.reservations.test_reservation_manager import CLUSTER, NOW, entry, manager, pieces


def test_turns_that_were_cut_come_back_after_the_end_of_their_recurrence() -> None:
    one = manager()
    smaller = Bundle(cpu_cores=6.0, memory_bytes=100 << 30)
    one.create(entry("r", "window(atom(b,8,8,20s,160),+0s,+30min) every 10min until +15min"), NOW)
    before = pieces(one, "r")
    assert before == [(1780, 1800, 8), (2380, 2400, 8)]
    assert len(one.set_capacity(smaller, NOW + 60)) == 2
    for at in (899, 900, 1000):
        assert one.advance(NOW + at) == []
    assert pieces(one, "r") == []
    assert len(one.set_capacity(CLUSTER, NOW + 1001)) == 2
    assert pieces(one, "r") == before
    one.set_capacity(smaller, NOW + 1801)
    one.advance(NOW + 1802)
    assert [each.id for each in one.owned()] == ["r"], "its last turn was cut, and may come back"
    one.set_capacity(CLUSTER, NOW + 1803)
    one.advance(NOW + 2399)
    assert pieces(one, "r") == before[1:]
    one.advance(NOW + 2400)
    assert one.owned() == []


def test_turns_that_were_cut_and_missed_end_with_their_recurrence() -> None:
    one = manager()
    one.create(entry("r", "window(atom(b,8,8,20s,160),+0s,+30min) every 10min until +15min"), NOW)
    one.set_capacity(Bundle(cpu_cores=6.0, memory_bytes=100 << 30), NOW + 60)
    one.advance(NOW + 2399)
    assert [each.id for each in one.owned()] == ["r"]
    one.advance(NOW + 2400)
    assert one.owned() == []
