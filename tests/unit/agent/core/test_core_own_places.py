"""A task assigned to the node on which its job was registered: the node tells the job at once."""

from __future__ import annotations

import pytest

from agent.core import events as e
from agent.core.instructions import Notify
from penstock.model import KindAmounts, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Place, TaskPlaced
from penstock.wire.master_api import Assign, Decided, TellPlaced
from tests.fakes.node_bed import GIB, NodeBed


@pytest.fixture
def bed() -> NodeBed:
    bed = NodeBed()
    bed.open()
    return bed


def wants(bed: NodeBed, memory_bytes: int = 0) -> tuple[str, TaskRequest]:
    """Register a job that wants one task placed."""
    job = bed.register()
    request = TaskRequest(task="t", usage=KindAmounts(cpu=1.0), memory_bytes=memory_bytes)
    bed.send(e.Requested(m.PLACE, 1, Place(job=job, stage="s", tasks=[request])))
    return job, request


def told(bed: NodeBed) -> list[TaskPlaced]:
    return [one.params for one in bed.given(Notify) if isinstance(one.params, TaskPlaced)]


def test_its_job_is_told_and_the_master_that_it_was(bed: NodeBed) -> None:
    job, request = wants(bed)
    assign = Assign(job=job, stage="s", user="eve", origin="n", request=request, priority=0.0)
    assert bed.send(e.Decided(1, [assign], bed.wall_s)) == Decided(refused=[], places_known=True)
    assert told(bed) == [TaskPlaced(job=job, task="t", node="n")]
    assert bed.node.jobs[job].tasks["t"].node == "n"


def test_of_a_refused_task_it_is_told_nothing(bed: NodeBed) -> None:
    job, request = wants(bed, memory_bytes=5 * GIB)
    assert bed.assign_request(request, job=job, origin="n") != []
    assert told(bed) == []
    assert bed.node.jobs[job].tasks["t"].node == ""


def test_a_job_of_another_origin_is_told_there(bed: NodeBed) -> None:
    assert bed.assign_request(TaskRequest(task="t", usage=KindAmounts(cpu=1.0))) == []
    bed.register(job=NodeBed.JOB)
    assert bed.assign_request(TaskRequest(task="u", usage=KindAmounts(cpu=1.0))) == []
    assert told(bed) == []


def test_an_older_master_s_message_about_it_changes_nothing(bed: NodeBed) -> None:
    job, request = wants(bed)
    bed.assign_request(request, job=job, origin="n")
    task, journal = bed.node.jobs[job].tasks["t"], dict(bed.journal)
    before = (task.state, task.node)
    assert bed.decide(TellPlaced(job=job, task="t", node="n")) == []
    assert (task.state, task.node) == before
    assert bed.journal == journal


def test_a_task_that_its_framework_cancelled_meanwhile_is_not_told_again(bed: NodeBed) -> None:
    job, request = wants(bed)
    bed.node.jobs[job].tasks.clear()
    assert bed.assign_request(request, job=job, origin="n") == []
    assert told(bed) == []
