"""The timer of a gate's leases: an idle slot goes back to the agent when its lease ends, whenever it fell idle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from penstock.client import gate_keeper
from penstock.client.gate_keeper import LeaseKeeper
from penstock.client.gate_lease import Lease, Leases
from penstock.client.gate_slot import Slot
from penstock.model import ResourceKind


class Timer:
    def __init__(self, at: float, call: Callable[[], object]) -> None:
        self.at, self.call, self.cancelled = at, call, False

    def cancel(self) -> None:
        self.cancelled = True


class Bed:
    """A keeper whose clock and timers a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []
        self.back: list[Lease[Slot]] = []
        self.leases: Leases[Slot] = Leases()
        monkeypatch.setattr(gate_keeper.time, "monotonic", lambda: self.now)
        self.keeper = LeaseKeeper(self.leases, cast(Any, self), self.back.append)

    def call_later(self, delay_s: float, call: Callable[[], object]) -> Timer:
        self.timers.append(Timer(self.now + delay_s, call))
        return self.timers[-1]

    def lend(self, until: float) -> Lease[Slot]:
        return self.keeper.lent(Slot(cast(Any, None), None, ResourceKind.CPU, 1), until)

    def fall_idle(self, lease: Lease[Slot]) -> bool:
        return self.leases.give(lease, lease.slot, self.now, failed=False)

    def pass_to(self, now: float) -> None:
        while due := [timer for timer in self.timers if timer.at <= now and not timer.cancelled]:
            first = min(due, key=lambda timer: timer.at)
            self.timers.remove(first)
            self.now = max(self.now, first.at)
            first.call()
        self.now = now


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    return Bed(monkeypatch)


def test_a_slot_in_use_when_another_lease_ends_goes_back_at_the_end_of_its_own(bed: Bed) -> None:
    first = bed.lend(1.0)
    bed.now = 0.5
    second = bed.lend(2.0)
    bed.pass_to(1.5)
    assert bed.back == []
    assert bed.fall_idle(second)
    assert not bed.fall_idle(first), "its lease is over: it goes back at once"
    bed.pass_to(1.9)
    assert bed.back == []
    bed.pass_to(2.0)
    assert bed.back == [second]


def test_a_shorter_lease_ends_before_a_longer_one_that_was_lent_first(bed: Bed) -> None:
    long, short = bed.lend(3.0), bed.lend(1.0)
    assert bed.fall_idle(long)
    assert bed.fall_idle(short)
    bed.pass_to(1.0)
    assert bed.back == [short]
    bed.pass_to(3.0)
    assert bed.back == [short, long]
    assert [timer for timer in bed.timers if not timer.cancelled] == [], "nothing is left to wait for"
