"""Slots that are passed on under a lease, by example: completions that the agent believes or refuses, and recalls."""

from __future__ import annotations

import pytest

from agent.queues import MonotaskQueues
from agent.queues.queues import Recalled
from penstock.model import ResourceKind
from penstock.wire.agent_api import Completion, Leased
from penstock.wire.errors import RpcError
from tests.fakes.queues import make_queues, specs

CPU, DISK = ResourceKind.CPU, ResourceKind.DISK
LEASE_S = 1.0


def make(lease_s: float = LEASE_S) -> MonotaskQueues:
    return make_queues(jobs={"j": 0.0, "urgent": 5.0}, lease_s=lease_s)


def test_a_chain_is_reported_in_one_message_and_counts_each() -> None:
    queues = make()
    [first] = queues.submit(1, "j", specs(1, 2, 3), 0.0)
    assert first.lease_until == LEASE_S
    chain = [
        Completion(id=1, then=2, execution_s=0.25),
        Completion(id=2, then=3, execution_s=0.25, failed=True),
        Completion(id=3),
    ]
    assert queues.complete(1, "j", chain, 0.75) == []
    assert queues.job_counts("j") == {"queued": 0, "running": 0, "done": 2, "failed": 1}
    assert queues.counts(CPU, 0.75).slot_seconds == 0.75
    assert queues.rates(0.75).cpu == 200 / 0.5
    assert queues.idle().cpu == 1


def test_a_grant_that_crossed_the_report_frees_the_slot_that_was_passed_on() -> None:
    queues = make_queues(2, jobs={"j": 0.0}, lease_s=LEASE_S)
    queues.submit(1, "j", specs(1, 2), 0.0)
    queues.submit(1, "j", specs(3, 4), 0.0)
    assert [m.id for m in queues.complete(1, "j", [Completion(id=2)], 0.1)] == [3]  # while 1 is passed on to 3
    assert [m.id for m in queues.complete(1, "j", [Completion(id=1, then=3)], 0.2)] == [4]
    assert queues.counts(CPU, 0.2).running == 2


@pytest.mark.parametrize(
    ("completion", "field"),
    [
        (Completion(id=1, then=9), "monotasks[0].then"),  # an unknown id
        (Completion(id=1, then=1), "monotasks[0].then"),  # itself
        (Completion(id=1, then=5), "monotasks[0].then"),  # of another kind
        (Completion(id=2, then=3), "monotasks[0].id"),  # waits
    ],
)
def test_a_slot_that_cannot_be_passed_on_is_refused_and_changes_nothing(completion: Completion, field: str) -> None:
    queues = make()
    queues.submit(1, "j", [*specs(1, 2, 3), *specs(4, 5, kind=DISK)], 0.0)
    before = queues.job_counts("j"), queues.counts(CPU, 0.0)
    with pytest.raises(RpcError) as caught:
        queues.complete(1, "j", [completion], 0.1)
    assert caught.value.body.field == field
    assert (queues.job_counts("j"), queues.counts(CPU, 0.0)) == before


def test_without_a_lease_nothing_is_passed_on() -> None:
    queues = make(lease_s=0.0)
    [granted] = queues.submit(1, "j", specs(1, 2), 0.0)
    assert granted.lease_until == 0.0
    with pytest.raises(RpcError, match="without a lease"):
        queues.complete(1, "j", [Completion(id=1, then=2)], 0.1)


def test_a_lease_is_recalled_once_and_only_for_the_first_in_order() -> None:
    queues = make()
    queues.add_job("later", -1.0)
    queues.submit(1, "j", specs(1, 2, 3), 0.0)
    queues.submit(1, "later", specs(1), 0.1)
    assert queues.take_recalled() == []
    queues.submit(1, "urgent", specs(1), 0.2)
    assert queues.take_recalled() == [Recalled("j", CPU)]
    queues.submit(1, "urgent", specs(2), 0.3)
    assert queues.take_recalled() == []


def test_a_change_of_priority_recalls_too_and_an_expired_lease_needs_no_recall() -> None:
    queues = make()
    queues.add_job("later", -1.0)
    queues.submit(1, "j", specs(1, 2, 3), 0.0)
    queues.submit(1, "later", specs(1), 0.1)
    queues.set_priority("later", 1.0, 0.2)
    assert queues.take_recalled() == [Recalled("j", CPU)]
    queues = make()
    queues.submit(1, "j", specs(1, 2, 3), 0.0)
    queues.submit(1, "urgent", specs(1), LEASE_S + 0.1)
    assert queues.take_recalled() == []


def test_a_gate_that_passes_on_far_beyond_the_end_of_a_lease_gets_no_more_of_them() -> None:
    queues = make()
    queues.submit(1, "j", specs(1, 2, 3), 0.0)
    queues.complete(1, "j", [Completion(id=1, then=2)], LEASE_S + 5.0)
    [granted] = queues.complete(1, "j", [Completion(id=2)], LEASE_S + 5.1)
    assert granted.lease_until == 0.0


def test_a_job_that_starves_gets_a_slot_and_no_lease() -> None:
    queues = make_queues(jobs={"first": 9.0, "last": 0.0}, lease_s=LEASE_S, job_wait_max_s=10)
    queues.submit(1, "first", specs(1, 2, 3), 0.0)
    queues.submit(1, "last", specs(1, 2), 0.0)
    queues.tick(9.0)
    assert [(m.job, m.id) for m in queues.complete(1, "first", [Completion(id=1)], 9.0)] == [("first", 2)]
    queues.tick(11.0)
    [granted] = queues.complete(1, "first", [Completion(id=2)], 11.0)
    assert (granted.job, granted.id, granted.lease_until) == ("last", 1, 0.0)
    assert [(m.job, m.id) for m in queues.complete(1, "last", [Completion(id=1)], 12.0)] == [("first", 3)]


def kept() -> MonotaskQueues:
    return make_queues(jobs={"j": 0.0, "other": 5.0}, lease_s=LEASE_S, lease_kept_s=3.0)


def test_a_slot_is_kept_only_while_no_work_waits_and_called_back_once_when_any_does() -> None:
    queues = kept()
    [first] = queues.submit(1, "j", specs(1), 0.0)
    assert (first.keep, first.lease_until) == (True, 3.0)
    queues.submit(2, "other", specs(1), 0.1)
    assert Recalled("j", CPU, 1) in queues.take_recalled()
    queues.submit(2, "other", specs(2), 0.2)
    assert queues.take_recalled() == []
    [second] = queues.complete(1, "j", [Completion(id=1)], 0.3)
    assert (second.keep, second.lease_until) == (False, 0.3 + LEASE_S)  # another one waits


def test_work_in_a_kept_slot_counts_once_and_no_longer_than_the_slot_was_held() -> None:
    queues = kept()
    queues.submit(1, "j", specs(1), 0.0)
    leased = Leased(monotasks=4, failed=1, input_bytes=300, execution_s=100.0, began_s=0.1)
    queues.complete(1, "j", [Completion(id=1, execution_s=0.5, leased=leased)], 2.0)
    assert queues.job_counts("j") == {"queued": 0, "running": 0, "done": 4, "failed": 1}
    assert queues.counts(CPU, 2.0).slot_seconds == 2.0
    assert queues.rates(2.0).cpu == (100 + 300) / 2.0
    assert queues.idle().cpu == 1


def test_a_gate_that_may_not_keep_a_slot_cannot_report_others_in_it() -> None:
    queues = make()  # leases, but none that may be idle
    queues.submit(1, "j", specs(1), 0.0)
    with pytest.raises(RpcError, match="without `keep`"):
        queues.complete(1, "j", [Completion(id=1, leased=Leased(monotasks=1))], 0.1)
    queues = kept()
    queues.submit(1, "j", specs(1), 0.0)
    with pytest.raises(RpcError, match="`failed` exceeds"):
        queues.complete(1, "j", [Completion(id=1, leased=Leased(monotasks=1, failed=2))], 0.1)
    assert queues.counts(CPU, 0.1).running == 1


def test_a_session_that_used_a_slot_far_beyond_its_lease_has_none_for_a_while() -> None:
    queues = kept()
    queues.submit(1, "j", specs(1), 0.0)
    late = Leased(monotasks=1, began_s=0.5)  # at 4.5, a second and a half after the end
    queues.complete(1, "j", [Completion(id=1, execution_s=0.1, leased=late)], 5.0)
    [granted] = queues.submit(1, "j", specs(2), 6.0)
    assert (granted.keep, granted.lease_until) == (False, 0.0)
    queues.complete(1, "j", [Completion(id=2)], 6.0)
    [granted] = queues.submit(1, "j", specs(3), 15.1)
    assert granted.keep
