"""The adapter learns how long bundles of a size wait for their promised place, and makes room for them earlier."""

from __future__ import annotations

import pytest

from master.core.guarantees import Promised
from master.reservations.follower import Follower
from master.reservations.placement_delay import HALF_LIFE_S, LEAST_S, MOST_S, MOST_SIZES, PlacementDelays, size_of
from master.reservations.rdl import Bundle
from master.reservations.reservation_manager import Entry, ManagerSettings, ReservationManager

SMALL, LARGE = Promised(4.0, 4e9, 4), Promised(32.0, 64e9, 2)


def launched(delays: PlacementDelays, at: float, delay_s: float, what: Promised = LARGE, name: str = "r") -> None:
    """A promise begins at ``at``, and has all that it wants so long behind that."""
    delays.saw(at, {name: what}, {name})
    delays.saw(at + delay_s, {name: what}, ())
    delays.saw(at + delay_s, {}, ())  # and it is over


def test_bundles_of_a_size_are_known_by_those_before_them() -> None:
    delays = PlacementDelays()
    launched(delays, 0.0, 4.0)
    assert delays.delay_s(size_of(LARGE), 4.0) == pytest.approx(2.0)
    assert delays.delay_s(size_of(SMALL), 4.0) == 0.0
    launched(delays, 10.0, 4.0)
    assert delays.delay_s(size_of(LARGE), 14.0) == pytest.approx(3.0, rel=0.01)
    assert size_of(Promised(34.0, 68e9, 2)) == size_of(LARGE), "about the same is the same"


def test_it_is_dropped_and_never_grows_without_bound() -> None:
    delays = PlacementDelays()
    for number in range(5):
        launched(delays, number * 2000.0, 1000.0)
    last = 4 * 2000.0 + 1000.0
    assert delays.delay_s(size_of(LARGE), last) == MOST_S
    assert delays.delay_s(size_of(LARGE), last + HALF_LIFE_S) == pytest.approx(MOST_S / 2)
    assert delays.all(last + 20 * HALF_LIFE_S) == {}
    launched(delays, last + 20 * HALF_LIFE_S, LEAST_S)
    assert delays.all(last + 20 * HALF_LIFE_S + LEAST_S) == {}, "a round is no delay"


def test_only_the_beginning_of_a_promise_counts() -> None:
    delays = PlacementDelays()
    delays.saw(0.0, {"r": LARGE}, {"r"})
    delays.saw(1.0, {"r": LARGE}, ())
    delays.saw(50.0, {"r": LARGE}, {"r"})  # a second job of it
    delays.saw(99.0, {"r": LARGE}, ())
    assert delays.all(99.0) == {size_of(LARGE): pytest.approx(0.5, rel=0.02)}


def test_a_task_that_never_began_teaches_nothing() -> None:
    delays = PlacementDelays()
    delays.saw(0.0, {"r": LARGE}, {"r"})
    delays.saw(90.0, {}, ())
    assert delays.all(90.0) == {}
    launched(delays, 100.0, 4.0)
    assert delays.delay_s(size_of(LARGE), 104.0) == pytest.approx(2.0), "the promise behind it begins anew"


def test_unused_sizes_make_room() -> None:
    delays = PlacementDelays()
    for power in range(MOST_SIZES + 3):
        launched(delays, float(power), 4.0, Promised(2.0**power, 0.0, 1))
    known = delays.all(100.0)
    assert len(known) == MOST_SIZES
    assert size_of(Promised(1.0, 0.0, 1)) not in known


def test_room_is_made_as_much_earlier_for_bundles_that_wait_longer() -> None:
    manager = ReservationManager(ManagerSettings(step_s=1.0))
    manager.set_capacity(Bundle(cpu_cores=64, memory_bytes=128 * 10**9), 0.0)
    for name, bundle in (("large", "<32GB,16core>"), ("small", "<1GB,1core>")):
        manager.create(Entry(name, "", "eve", f"window(atom({bundle},2,2,10,20),90,100)", 0.0), 0.0)
    follower = Follower(manager, lead_s=1.0)
    assert follower.changes_at(0.0) == 89.0
    launched(manager.placement_delays, 10.0, 6.0)  # two bundles of 16 cores and 32 GB: three seconds
    assert follower.promised(86.5) == {}
    assert set(follower.promised(87.5)) == set(follower.promised(88.5)) == {"large"}
    assert set(follower.promised(89.0)) == {"large", "small"}
    assert follower.changes_at(80.0) == 87.0
    manager.delete("large", 80.0)
    assert set(follower.promised(89.0)) == {"small"}


def test_the_follower_gets_the_rounds() -> None:
    manager = ReservationManager(ManagerSettings(step_s=1.0))
    manager.set_capacity(Bundle(cpu_cores=4), 0.0)
    manager.create(Entry("r", "", "eve", "window(atom(<1core>,4,4,10,40),10,20)", 0.0), 0.0)
    follower = Follower(manager, lead_s=0.0)
    follower.saw(10.0, {"r"})
    follower.saw(12.0, ())
    assert manager.placement_delays.all(12.0) == {size_of(Promised(4.0, 0.0, 4)): pytest.approx(1.0)}
