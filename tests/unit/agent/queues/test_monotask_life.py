"""The life of a monotask follows its table; an event without a row is an error."""

from __future__ import annotations

import pytest

from agent.queues import MonotaskQueues, slotless
from agent.queues.monotask import ENDED, GRANTED, LIFE, QUEUED, State
from tests.fakes.queues import make_queues, specs, submit


def test_every_state_is_reached_and_only_the_last_one_is_never_left() -> None:
    assert {QUEUED, *(after for rows in LIFE.values() for after in rows.values())} == set(State)
    assert {state for rows in LIFE.values() for state in rows} == set(State) - {ENDED}


@pytest.fixture
def queues() -> MonotaskQueues:
    return make_queues(jobs={"a": 0.0})


def test_a_monotask_that_holds_a_slot_is_given_no_other(queues: MonotaskQueues) -> None:
    queues.submit(0, "a", specs(1), 0.0)
    with pytest.raises(KeyError, match="GRANTED"):
        slotless.give_slot(queues, "a", specs(1)[0], 1.0)
    assert queues.part(0, "a", specs(1)[0].kind)[2][1].state is GRANTED


def test_a_monotask_that_has_ended_is_not_granted(queues: MonotaskQueues) -> None:
    submit(queues, "a", 1)
    job, resource, live = queues.part(1, "a", specs(1)[0].kind)
    ended = live[1]
    queues.cancel(1, "a", [1], 1.0)
    with pytest.raises(KeyError, match="ENDED"):
        resource.hold(job, ended, 2.0)
    assert (ended.state, resource.free) == (ENDED, resource.slots)
