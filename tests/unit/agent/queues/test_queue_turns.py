"""The order of turns after priorities have changed often, after a slot was taken back, and after a long wait."""

from __future__ import annotations

from random import Random

from agent.queues import COMMANDS, MonotaskQueues, overdue
from penstock.model import ResourceKind
from penstock.wire.agent_api import Completion
from tests.fakes.queues import complete, ids, make_queues, specs, submit

WAIT_MAX_S, HELD_MAX_S = 2.0, 5.0


def test_priorities_that_change_for_ever_fill_no_queue_and_leave_the_order_true() -> None:
    queues = make_queues(jobs={"holds": 0.0})
    submit(queues, "holds", 0)
    priorities = {f"j{number}": float(number) for number in range(20)}
    for number, (job, priority) in enumerate(priorities.items(), start=1):
        queues.add_job(job, priority)
        submit(queues, job, number)
    random = Random(1)
    for _ in range(1000):
        job = random.choice(list(priorities))
        priorities[job] = float(random.randrange(1000))
        queues.set_priority(job, priorities[job], 0.0)
    for turn in range(1000):
        priorities["j0"] = float(turn % 2)
        queues.set_priority("j0", priorities["j0"], 0.0)
    assert all(len(resource.jobs) <= 66 + 2 * len(priorities) for resource in queues.resources())
    [first] = queues.complete(1, "holds", [Completion(id=0)], 1.0)
    order = [first]
    while granted := queues.complete(1, order[-1].job, [Completion(id=order[-1].id)], 1.0):
        order += granted
    served = [priorities[monotask.job] for monotask in order]
    assert served == sorted(priorities.values(), reverse=True)


def test_a_user_in_debt_is_served_again_as_soon_as_one_of_their_slots_is_returned() -> None:
    queues = make_queues(2, job_wait_max_s=WAIT_MAX_S)
    for job, user in (("a", "eve"), ("c", "max")):
        queues.add_job(job, 0.0, user)
    assert submit(queues, "a", 1, 2, 3, 4) == [1, 2]
    submit(queues, "c", 5)
    queues.tick(HELD_MAX_S + 1.0)
    taken, granted = overdue.take_back(queues, HELD_MAX_S + 1.0, HELD_MAX_S)
    [kept] = {1, 2} - {each.monotask.id for each in taken}
    assert isinstance(kept, int) and ids(granted) == [5]
    assert complete(queues, "c", 5, 7.0) == [], "with the one that runs on, eve has two"
    assert complete(queues, "a", kept, 8.0) == [3]


def test_a_kept_slot_is_not_called_back_for_work_that_has_a_slot_at_once() -> None:
    queues = make_queues(3, jobs={"j": 0.0, "ahead": 5.0}, lease_s=1.0, lease_kept_s=3.0)
    submit(queues, "j", 1)
    assert submit(queues, "ahead", 2, 3, session=2) == [2, 3]
    assert queues.take_recalled() == []
    assert submit(queues, "ahead", 4, session=2) == []
    assert [recalled.session for recalled in queues.take_recalled() if recalled.job == "j"] == [None, 1]


def test_a_job_with_its_full_number_of_commands_gets_one_more_when_it_has_waited_too_long() -> None:
    queues = make_queues(2, jobs={"j": 0.0}, ranked=True, job_wait_max_s=WAIT_MAX_S)
    assert submit(queues, "j", 1, 2, 3, 4, session=COMMANDS) == [1, 2]
    assert queues.tick(WAIT_MAX_S - 1.0) == []
    assert ids(queues.tick(WAIT_MAX_S + 1.0)) == [3]
    assert queues.tick(WAIT_MAX_S + 2.0) == []


def test_no_command_passes_a_monotask_of_a_framework_that_waits_for_a_slot() -> None:
    queues = make_queues(2, jobs={"full": 3.0, "gate": 2.0, "last": 1.0}, ranked=True)
    assert submit(queues, "full", 1, 2, 3, session=COMMANDS) == [1, 2]
    assert submit(queues, "gate", 4) == submit(queues, "last", 5, session=COMMANDS) == []
    assert ids(queues.cancel(1, "gate", [4], 1.0)) == [5]


def test_the_leases_and_kept_slots_of_a_job_that_has_left_are_not_recalled() -> None:
    queues = make_queues(jobs={"j": 0.0, "ahead": 5.0}, lease_s=1.0, lease_kept_s=3.0)
    [kept] = queues.submit(1, "j", specs(1), 0.0)
    assert kept.keep
    queues.remove_job("j", 0.1)
    assert submit(queues, "ahead", 2, 3, session=2, now=0.2) == [2]
    assert queues.take_recalled() == []


def test_the_wait_of_a_job_begins_anew_after_its_monotasks_were_cancelled() -> None:
    queues = make_queues(jobs={"holds": 2.0, "urgent": 1.0, "late": 0.0}, job_wait_max_s=WAIT_MAX_S)
    submit(queues, "holds", 1)
    submit(queues, "late", 2)
    queues.cancel(1, "late", [2], 0.1)
    submit(queues, "urgent", 3, now=WAIT_MAX_S)
    submit(queues, "late", 4, now=WAIT_MAX_S)
    queues.tick(WAIT_MAX_S + 0.5)
    assert complete(queues, "holds", 1, WAIT_MAX_S + 0.6) == [3]


def test_jobs_that_come_and_go_behind_one_that_waits_take_no_memory() -> None:
    queues = make_queues(jobs={"holds": 1.0})
    submit(queues, "holds", 0, 1)
    for number in range(1000):
        queues.add_job(f"j{number}", 0.0)
        submit(queues, f"j{number}", 0)
        queues.remove_job(f"j{number}", 0.0)
    assert all(len(resource.jobs) <= 64 + 2 * 2 for resource in queues.resources())


DISK = ResourceKind.DISK


def ranked_disk() -> MonotaskQueues:
    """One disk slot, for jobs that the kernel orders; a monotask of less than 100 bytes is small."""
    return make_queues(jobs={"j": 0.0}, disk_small_bytes=100, lease_s=5.0, ranked=True)


def test_small_monotasks_wait_for_a_part_of_a_slot_on_a_ranked_disk_too() -> None:
    queues = ranked_disk()
    assert ids(queues.submit(1, "j", specs(1, kind=DISK, size=1000), 0.0)) == [1]
    assert queues.submit(1, "j", specs(*range(2, 102), kind=DISK, size=1), 0.0) == []
    assert ids(queues.complete(1, "j", [Completion(id=1)], 1.0)) == list(range(2, 18)), "a slot has sixteen parts"


def test_the_part_of_a_slot_that_a_slot_passed_on_leaves_is_granted() -> None:
    queues = ranked_disk()
    [*_, last] = queues.submit(1, "j", specs(*range(1, 17), kind=DISK, size=1), 0.0)
    assert queues.submit(1, "j", [*specs(17, kind=DISK, size=1000), *specs(18, kind=DISK, size=1)], 0.0) == []
    assert last.lease_until
    assert ids(queues.complete(1, "j", [Completion(id=16, then=17)], 1.0)) == [18]


def test_monotasks_that_were_cancelled_behind_one_that_waits_take_no_memory() -> None:
    queues = make_queues(jobs={"j": 0.0})
    submit(queues, "j", 0, 1)
    for number in range(2, 10_000):
        submit(queues, "j", number)
        queues.cancel(1, "j", [number], 0.0)
    [job] = queues.jobs()
    assert sum(map(len, job.waiting)) <= 64 + 2
    assert complete(queues, "j", 0, 1.0) == [1]
