"""The session of monotasks: those that wait, are granted or go on without a grant, and the messages to the agent."""

from __future__ import annotations

import pytest

from penstock.client.gate_slot import IdleSlots, KeptSlot
from penstock.client.monotask_session import SETTLED_S, TRANSITIONS, MonotaskSession, SessionMonotask
from penstock.model.resources import ResourceKind

CPU, DISK = ResourceKind.CPU, ResourceKind.DISK
PATIENCE_S = 10.0
Session = MonotaskSession[SessionMonotask]


@pytest.fixture
def session() -> Session:
    return MonotaskSession(PATIENCE_S, 0.0)


@pytest.fixture
def linked(session: Session) -> Session:
    session.link()
    session.back(1.0)
    return session


def submitted(session: Session, kind: ResourceKind = CPU, size: int = 1) -> SessionMonotask:
    one = SessionMonotask(kind, size)
    session.submit(one)
    return one


def granted(session: Session, now: float = 2.0, lease_s: float = 0.0, keep: bool = False) -> SessionMonotask:
    one = submitted(session)
    session.take()
    assert session.grant([one.id], now, lease_s, keep) == [one]
    return one


def sent(session: Session) -> tuple[list[object], list[object], list[object]]:
    out = session.take()
    return [(spec.id, spec.running) for spec in out.submit], [each.id for each in out.complete], list(out.cancel)


def test_each_state_but_the_first_and_last_can_end_and_can_lose_the_connection() -> None:
    states = {state for table in TRANSITIONS.values() for pair in table.items() for state in pair}
    assert set(TRANSITIONS["end"]) == set(TRANSITIONS["lose"]) == states - {"new", "ended"}


def test_completing_before_the_grant_is_an_error(linked: Session) -> None:
    with pytest.raises(ValueError, match="waits for its grant"):
        linked.complete(submitted(linked))


def test_a_grant_of_a_monotask_that_a_leased_slot_has_started_is_late(linked: Session) -> None:
    first, then = granted(linked, now=2.0, lease_s=1.0), submitted(linked)
    linked.take()
    assert linked.complete(first, 2.1) is then
    assert linked.grant([then.id], 2.2) == []
    assert (then.began, linked.waiting[CPU], linked.granted) == (2.1, 0, 1)


def test_a_grant_that_crosses_a_withdrawal_is_late(linked: Session) -> None:
    one = submitted(linked)
    linked.take()
    linked.cancel(one)
    assert linked.grant([one.id], 2.0) == []
    assert (linked.waiting[CPU], linked.granted) == (0, 0)


def test_an_ended_monotask_may_be_submitted_again_with_another_id(linked: Session) -> None:
    one = submitted(linked)
    linked.cancel(one)
    first = one.id
    linked.submit(one)
    assert one.id != first
    assert sent(linked) == ([(one.id, False)], [], [])
    with pytest.raises(KeyError):
        linked.submit(one)


def test_monotasks_wait_at_most_the_patience_from_the_start_of_the_outage(session: Session) -> None:
    early, late = submitted(session), submitted(session)
    assert session.deadline == PATIENCE_S
    assert session.give_up(9.9) == []
    assert session.give_up(10.0) == [early, late]
    assert session.open
    assert session.outages == 1
    third = submitted(session)
    assert session.give_up(11.0) == [third]
    assert (session.deadline, session.outages) == (None, 1)


def test_an_outage_ends_when_the_agent_is_back_and_the_next_one_is_another(session: Session) -> None:
    submitted(session)
    session.give_up(10.0)
    session.link()
    session.back(20.0)
    assert not session.open
    one = submitted(session)
    assert sent(session) == ([(one.id, False)], [], [])
    session.lost(30.0)
    assert session.deadline == 40.0
    assert session.give_up(39.0) == []
    assert session.give_up(40.0) == [one]
    assert sent(session) == ([], [], [one.id]), "the agent is connected, but silent"
    assert session.outages == 2


def test_an_agent_that_keeps_crashing_is_away_all_the_time(linked: Session) -> None:
    submitted(linked)
    linked.lost(100.0)
    given_up: list[SessionMonotask] = []
    for crash in range(1, 30):
        now = 100.0 + crash * (SETTLED_S / 2)
        if given_up:
            break
        linked.back(now)
        linked.lost(now + SETTLED_S / 4)
        given_up = linked.give_up(now + SETTLED_S / 4)
    assert now <= 100.0 + PATIENCE_S + SETTLED_S
    assert (len(given_up), linked.outages) == (1, 1)


# ---------------------------------------------------------------- leases


def test_a_lease_passes_the_slot_to_the_monotask_that_the_agent_would_grant_next(linked: Session) -> None:
    one = granted(linked, now=2.0, lease_s=1.0)
    _, disk, large = submitted(linked, size=1), submitted(linked, DISK), submitted(linked, size=9)
    linked.take()
    unsent = submitted(linked, size=10)
    assert linked.complete(one, 2.5) is large
    assert (large.state, large.lease_until, unsent.state, disk.state) == ("granted", 3.0, "unsent", "queued")
    assert [(each.id, each.then, each.execution_s) for each in linked.take().complete] == [(one.id, large.id, 0.5)]
    assert linked.complete(large, 3.0) is None, "the lease is over"


@pytest.mark.parametrize("idle", [True, False])
def test_a_recall_ends_the_lease_or_only_the_right_to_be_idle(linked: Session, idle: bool) -> None:
    one = granted(linked, lease_s=5.0, keep=True)
    linked.recall(DISK)
    assert one.keep
    linked.recall(CPU, idle=idle)
    assert (one.keep, one.lease_until > 0) == (False, idle)


# ---------------------------------------------------------------- slots that are idle under leases


def kept(session: Session, until: float) -> KeptSlot:
    return KeptSlot(granted(session, 0.0, until, keep=True))


def give(idle: IdleSlots, slot: KeptSlot, now: float) -> bool:
    return idle.give(slot, slot.holder, now, failed=False)


def test_a_slot_in_use_when_another_lease_ends_goes_back_at_the_end_of_its_own(linked: Session) -> None:
    idle = IdleSlots(linked.waiting)
    first, second = kept(linked, 1.0), kept(linked, 2.0)
    assert linked.next_expiry(0.0) == 1.0
    assert idle.expired(1.5) == []
    assert linked.next_expiry(1.5) == 2.0
    assert give(idle, second, 1.5)
    assert not give(idle, first, 1.5), "its lease is over: it goes back at once"
    assert idle.expired(1.9) == []
    assert idle.expired(2.0) == [second]
    assert linked.next_expiry(2.0) is None


def test_a_slot_whose_end_of_use_crosses_the_end_of_its_lease_is_not_kept(linked: Session) -> None:
    idle, one = IdleSlots(linked.waiting), kept(linked, 1.0)
    assert idle.expired(1.0) == [], "it is in use, and nothing looks for it again"
    assert not give(idle, one, 0.9), "the clock as its thread had read it before"


def test_a_shorter_lease_ends_before_a_longer_one_that_was_granted_first(linked: Session) -> None:
    idle = IdleSlots(linked.waiting)
    long, short = kept(linked, 3.0), kept(linked, 1.0)
    assert linked.next_expiry(0.0) == 1.0
    assert give(idle, long, 0.5) and give(idle, short, 0.5)
    assert idle.expired(1.0) == [short]
    assert idle.expired(3.0) == [long]


def test_no_slot_is_kept_while_a_monotask_of_its_kind_waits_nor_after_a_recall(linked: Session) -> None:
    idle = IdleSlots(linked.waiting)
    first, second, third = kept(linked, 9.0), kept(linked, 9.0), kept(linked, 9.0)
    assert give(idle, first, 1.0)
    waiting = submitted(linked)
    assert not give(idle, second, 1.0)
    linked.cancel(waiting)
    linked.recall(CPU, idle=True)
    assert not give(idle, third, 1.0)
    assert idle.take(SessionMonotask(CPU, 1), 1.0) is None
    assert idle.reclaim() == [first]


def test_a_lost_connection_ends_all_leases(linked: Session) -> None:
    idle = IdleSlots(linked.waiting)
    slot = kept(linked, 9.0)
    linked.unlink()
    assert not give(idle, slot, 1.0)
    assert linked.next_expiry(1.0) is None
