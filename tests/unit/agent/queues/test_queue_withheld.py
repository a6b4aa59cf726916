"""CPU slots whose cores are promised are withheld, at the queues' interface."""

from __future__ import annotations

from agent.queues import COMMANDS, MonotaskQueues
from agent.queues.withheld import asks_cpu, withhold
from penstock.model import ResourceKind
from tests.fakes.queues import complete, ids, make_queues, specs, submit

SLOTS = 4
WAIT_MAX_S = 30.0


def make(*, ranked: bool = False) -> MonotaskQueues:
    return make_queues(SLOTS, jobs={"j": 0.0}, job_wait_max_s=WAIT_MAX_S, ranked=ranked)


def test_where_every_core_is_promised_a_job_that_starves_gets_one_slot_and_no_second() -> None:
    queues = make()
    queues.add_job("other", 0.0)
    withhold(queues, SLOTS, 0.0)
    assert submit(queues, "j", 1, 2) == submit(queues, "other", 3) == []
    assert queues.tick(WAIT_MAX_S - 1.0) == withhold(queues, SLOTS, WAIT_MAX_S - 1.0) == []
    assert ids(queues.tick(WAIT_MAX_S + 1.0)) == [1]
    assert withhold(queues, SLOTS, WAIT_MAX_S + 1.0) == []
    assert complete(queues, "j", 1, WAIT_MAX_S + 2.0) == [3], "the other job has starved, too"


def test_commands_beyond_the_slots_do_not_start_on_promised_cores_but_in_the_place_of_those_behind() -> None:
    queues = make(ranked=True)
    queues.add_job("ahead", 1.0)
    withhold(queues, 3, 0.0)
    assert submit(queues, "j", 1, 2, session=COMMANDS) == [1]
    assert submit(queues, "ahead", 3, 4, session=COMMANDS) == [3]


def test_the_rate_counts_whole_slots_while_more_are_held_than_are_granted() -> None:
    """X/T × slots: 100 B in 1 s of a slot each. Withholding slots slows the processing; it does not fake its time."""
    queues = make()
    submit(queues, "j", 1, 2)
    withhold(queues, SLOTS, 0.5)
    for number in (1, 2):
        complete(queues, "j", number)
    assert queues.rates(1.0).cpu == SLOTS * 100.0


def test_a_connection_asks_for_the_cpu_while_it_waits_and_while_it_holds() -> None:
    queues = make()
    withhold(queues, SLOTS - 1, 0.0)
    submit(queues, "j", 1)
    submit(queues, "j", 2, session=2)
    queues.submit(3, "j", specs(3, kind=ResourceKind.DISK), 0.0)
    assert [asks_cpu(queues, session) for session in (1, 2, 3, 4)] == [True, True, False, False]
    complete(queues, "j", 1)
    assert not asks_cpu(queues, 1)
