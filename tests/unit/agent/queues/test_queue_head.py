"""The next monotask in a queue, as the status page shows it."""

from __future__ import annotations

from agent.queues.counts import QueueHead
from penstock.model import MonotaskSpec, ResourceKind
from tests.fakes.queues import make_queues

CPU = ResourceKind.CPU


def spec(number: int, task: str = "") -> MonotaskSpec:
    return MonotaskSpec(id=number, kind=CPU, input_bytes=1, task=task)


def test_an_empty_queue() -> None:
    one = make_queues(jobs={"a": 0.0})
    assert one.counts(CPU, 0.0).head is None
    one.submit(1, "a", [spec(1)], 1.0)  # it runs at once
    assert one.counts(CPU, 1.0).head is None


def test_the_first_of_the_job_that_goes_first() -> None:
    one = make_queues(jobs={"early": 0.0, "urgent": 1.0})

    def head(now: float, *, job: str, task: str) -> QueueHead:
        since_s = now - 10.0
        return QueueHead(job=job, task=task, waits_s=since_s, held_by="early", held_s=since_s)

    for job in ("early", "urgent"):
        one.submit(1, job, [spec(1), spec(2, f"{job}-2"), spec(3)], 10.0)
    assert one.counts(CPU, 12.0).head == head(12.0, job="urgent", task="")
    one.cancel(1, "urgent", [1], 13.0)
    assert one.counts(CPU, 13.0).head == head(13.0, job="urgent", task="urgent-2")
    one.set_priority("urgent", -1.0, 14.0)
    assert one.counts(CPU, 14.0).head == head(14.0, job="early", task="early-2")


def test_the_job_that_has_held_a_slot_of_the_kind_for_longest_is_named() -> None:
    one = make_queues(cores=2, jobs={"a": 0.0, "b": 0.0, "c": 0.0, "d": 0.0})
    one.submit(1, "a", [MonotaskSpec(id=1, kind=ResourceKind.DISK, input_bytes=1)], 1.0)
    one.submit(1, "b", [spec(1)], 3.0)
    one.submit(1, "c", [spec(1)], 2.0)
    one.submit(1, "d", [spec(1)], 4.0)
    head = one.counts(CPU, 9.0).head
    assert head is not None
    assert (head.job, head.waits_s, head.held_by, head.held_s) == ("d", 5.0, "c", 7.0)


def test_a_starving_job_goes_first_and_looking_changes_nothing() -> None:
    one = make_queues(jobs={"high": 1.0, "low": 0.0}, job_wait_max_s=30.0)
    one.submit(1, "high", [spec(1), spec(2), spec(3)], 0.0)
    one.submit(1, "low", [spec(1)], 1.0)
    head = one.counts(CPU, 2.0).head
    assert head is not None and head.job == "high"
    one.tick(40.0)
    before = one.counts(CPU, 40.0)
    assert before.head is not None and before.head.job in {"high", "low"}
    assert one.counts(CPU, 40.0) == before
    (granted,) = one.cancel(1, "high", [1], 41.0)
    assert granted.job == before.head.job
