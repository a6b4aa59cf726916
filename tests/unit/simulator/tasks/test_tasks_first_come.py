"""Ursa's Table 6, "JO": the queues without the order of jobs and monotasks."""

from __future__ import annotations

from agent.core.settings import NodeSettings
from penstock.model import Capacity, MonotaskSpec, ResourceKind
from penstock.wire.agent_api import Completion
from simulator.tasks.first_come import FirstComeQueues

CPU = ResourceKind.CPU


def spec(number: int, size: int) -> MonotaskSpec:
    return MonotaskSpec(id=number, kind=CPU, input_bytes=size)


def queues() -> FirstComeQueues:
    return FirstComeQueues(NodeSettings("n", "i", Capacity(cores=1.0, memory_bytes=2**30)))


def served(line: FirstComeQueues, running: tuple[int, str, int], count: int) -> list[int]:
    order = []
    for _ in range(count):
        session, job, number = running
        (granted,) = line.complete(session, job, [Completion(id=number)], 1.0)
        assert isinstance(granted.id, int)
        running = (granted.session, granted.job, granted.id)
        order.append(granted.id)
    return order


def test_monotasks_are_served_as_they_came_for_any_job_and_size() -> None:
    line = queues()
    line.add_job("late", 0.0)
    line.add_job("early", 9.0)
    assert [m.id for m in line.submit(1, "late", [spec(1, 10)], 0.0)] == [1]
    line.submit(1, "late", [spec(2, 10), spec(3, 99)], 0.0)
    line.submit(2, "early", [spec(4, 50)], 0.0)
    line.set_priority("early", 99.0, 0.0)
    assert served(line, (1, "late", 1), 3) == [2, 3, 4]
    assert line.idle().cpu == 0


def test_cancelled_tasks_are_passed_over() -> None:
    line = queues()
    line.add_job("j", 0.0)
    line.submit(1, "j", [spec(1, 10)], 0.0)
    line.submit(1, "j", [spec(2, 10), spec(3, 10)], 0.0)
    assert line.cancel(1, "j", [2], 0.0) == []
    assert served(line, (1, "j", 1), 1) == [3]
    assert line.complete(1, "j", [Completion(id=3)], 2.0) == []
    assert line.idle().cpu == 1
    assert line.pending().cpu == 0
