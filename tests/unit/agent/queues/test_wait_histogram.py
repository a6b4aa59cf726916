"""How long granted monotasks had waited, and how many were granted, in any way."""

from __future__ import annotations

from agent.queues import MonotaskQueues, slotless
from agent.queues.wait_histogram import BOUNDS_S
from penstock.model import MonotaskSpec, ResourceKind
from penstock.wire.agent_api import Completion
from tests.fakes.queues import complete, make_queues, specs, submit

CPU = ResourceKind.CPU


def make(lease_s: float = 0.0) -> MonotaskQueues:
    return make_queues(jobs={"j": 0.0}, lease_s=lease_s)


def counts(queues: MonotaskQueues) -> tuple[int, list[int], float]:
    said = queues.counts(CPU, 9.0)
    assert len(said.waits.counts) == len(BOUNDS_S) + 1
    assert sum(said.waits.counts) == said.granted
    return said.granted, list(said.waits.counts), said.waits.sum_s


def test_a_lone_monotask_has_no_wait() -> None:
    queues = make()
    submit(queues, "j", 1)
    assert counts(queues) == (1, [1, 0, 0, 0, 0, 0, 0, 0, 0], 0.0)


def test_a_wait_is_in_its_bucket() -> None:
    queues = make()
    submit(queues, "j", 1)
    submit(queues, "j", 2)
    complete(queues, "j", 1, 5.0)
    assert counts(queues) == (2, [1, 0, 0, 0, 1, 0, 0, 0, 0], 5.0)


def test_a_slot_that_is_passed_on_is_a_grant_too() -> None:
    queues = make(60.0)
    submit(queues, "j", 1, 2)
    queues.complete(1, "j", [Completion(id=1, then=2)], 0.5)
    assert counts(queues) == (2, [1, 0, 0, 1, 0, 0, 0, 0, 0], 0.5)


def test_a_slot_that_is_held_over_a_restart_was_granted_before() -> None:
    queues = make()
    queues.submit(1, "j", [MonotaskSpec(id=1, kind=CPU, input_bytes=100, running=True)], 50.0)
    assert (queues.counts(CPU, 0.0).running, counts(queues)) == (1, (0, [0] * 9, 0.0))
    queues.submit(1, "j", specs(2), 51.0)
    complete(queues, "j", 1, 56.0)
    assert counts(queues) == (1, [0, 0, 0, 0, 1, 0, 0, 0, 0], 5.0)


def test_a_promoted_command_waited_for_no_slot() -> None:
    queues = make()
    command = MonotaskSpec(id="t", kind=CPU, input_bytes=100)
    slotless.begin(queues, "j", command, 0.0)
    slotless.give_slot(queues, "j", command, 30.0)
    assert (queues.counts(CPU, 0.0).running, counts(queues)) == (1, (0, [0] * 9, 0.0))


def test_slotless_work_has_no_grant() -> None:
    queues = make_queues(jobs={"j": 0.0}, network_bypass_bytes=200)
    assert len(queues.submit(1, "j", specs(1, kind=ResourceKind.NETWORK), 0.0)) == 1
    assert queues.counts(ResourceKind.NETWORK, 1.0).granted == 0
