"""CPU slots whose cores are promised are withheld, at the queues' door."""

from __future__ import annotations

from agent.queues import COMMANDS, Monotask, MonotaskQueues
from agent.queues.withheld import asks_cpu, withhold
from penstock.model import Capacity, MonotaskSpec, ResourceKind
from penstock.wire.agent_api import Completion

CPU, DISK = ResourceKind.CPU, ResourceKind.DISK
SLOTS = 4
WAIT_MAX_S = 30.0


def make(*, ranked: bool = False) -> MonotaskQueues:
    queues = MonotaskQueues(
        Capacity(cores=SLOTS, memory_bytes=1), network_bypass_bytes=0, rate_window_s=10, job_wait_max_s=WAIT_MAX_S,
        ranked=ranked,
    )  # fmt: skip
    queues.add_job("j", 0.0)
    return queues


def submit(queues: MonotaskQueues, *numbers: int, session: int = 1, now: float = 0.0, job: str = "j") -> list[object]:
    specs = [MonotaskSpec(id=number, kind=CPU, input_bytes=100, stage="s") for number in numbers]
    return ids(queues.submit(session, job, specs, now))


def ids(granted: list[Monotask]) -> list[object]:
    return [monotask.id for monotask in granted]


def complete(queues: MonotaskQueues, number: int, now: float = 1.0) -> list[object]:
    return ids(queues.complete(1, "j", [Completion(id=number)], now))


def test_where_every_core_is_promised_a_job_that_starves_gets_one_slot_and_no_second() -> None:
    queues = make()
    queues.add_job("other", 0.0)
    withhold(queues, SLOTS, 0.0)
    assert submit(queues, 1, 2) == submit(queues, 3, job="other") == []
    assert queues.tick(WAIT_MAX_S - 1.0) == withhold(queues, SLOTS, WAIT_MAX_S - 1.0) == []
    assert ids(queues.tick(WAIT_MAX_S + 1.0)) == [1]
    assert withhold(queues, SLOTS, WAIT_MAX_S + 1.0) == []
    assert complete(queues, 1, WAIT_MAX_S + 2.0) == [3], "the other job has starved, too"


def test_commands_beyond_the_slots_do_not_start_on_promised_cores_but_in_the_place_of_those_behind() -> None:
    queues = make(ranked=True)
    queues.add_job("ahead", 1.0)
    withhold(queues, 3, 0.0)
    assert submit(queues, 1, 2, session=COMMANDS) == [1]
    assert submit(queues, 3, 4, session=COMMANDS, job="ahead") == [3]


def test_the_rate_counts_whole_slots_while_more_are_held_than_are_granted() -> None:
    """X/T × slots: 100 B in 1 s of a slot each. Withholding slots slows the processing; it does not fake its time."""
    queues = make()
    submit(queues, 1, 2)
    withhold(queues, SLOTS, 0.5)
    for number in (1, 2):
        complete(queues, number, 1.0)
    assert queues.rates(1.0).cpu == SLOTS * 100.0


def test_a_connection_asks_for_the_cpu_while_it_waits_and_while_it_holds() -> None:
    queues = make()
    withhold(queues, SLOTS - 1, 0.0)
    submit(queues, 1)
    submit(queues, 2, session=2)
    queues.submit(3, "j", [MonotaskSpec(id=3, kind=DISK, input_bytes=1, stage="s")], 0.0)
    assert [asks_cpu(queues, session) for session in (1, 2, 3, 4)] == [True, True, False, False]
    complete(queues, 1)
    assert not asks_cpu(queues, 1)
