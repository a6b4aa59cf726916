"""Jobs of another origin that frameworks here join: which users may, and the life of these jobs here."""

from __future__ import annotations

import pytest

from agent.core import events as e
from agent.core import instructions as i
from penstock.model import KindAmounts, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Place, TaskRefs
from penstock.wire.errors import RpcError
from tests.fakes.node_bed import NodeBed

JOB = "other-1"


@pytest.fixture
def bed() -> NodeBed:
    made = NodeBed()
    made.open(1, "eve")
    made.open(2, "bob")
    return made


def join(bed: NodeBed, session: int) -> None:
    bed.send(e.JobIntroduced(JOB, "dask", "eve", 7.0))
    bed.register(session, job=JOB)


def test_it_is_joined_and_dropped_with_the_last_connection_without_a_message_to_its_origin(bed: NodeBed) -> None:
    join(bed, 1)
    assert bed.node.jobs[JOB].record.priority == 7.0
    assert bed.node.client_jobs.states() == [], "it is its origin that speaks for it"
    after = bed.handle(e.SessionClosed(1))
    assert JOB not in bed.node.jobs
    assert not [one for one in after if isinstance(one, i.SendToMaster)]


def test_it_belongs_to_its_user_alone(bed: NodeBed) -> None:
    with pytest.raises(RpcError, match="belongs to eve"):
        join(bed, 2)


def test_tasks_that_the_master_placed_stay_when_the_last_connection_goes(bed: NodeBed) -> None:
    join(bed, 1)
    request = TaskRequest(task="t", usage=KindAmounts(cpu=1.0), memory_bytes=1 << 20)
    bed.assign_request(request, origin="other", priority=7.0)
    bed.handle(e.SessionClosed(1))
    assert [held.task for held in bed.node.held.of_job(JOB)] == ["t"]
    assert JOB in bed.node.jobs


def test_only_its_origin_asks_for_its_tasks(bed: NodeBed) -> None:
    join(bed, 1)
    request = TaskRequest(task="t", usage=KindAmounts(cpu=1.0), memory_bytes=1 << 20)
    for asked in (
        e.Requested(m.PLACE, 1, Place(job=JOB, stage="s", tasks=[request], opportunistic="no")),
        e.Requested(m.CANCEL_TASKS, 1, TaskRefs(job=JOB, tasks=["t"])),
    ):
        with pytest.raises(RpcError, match="registered on another node") as refusal:
            bed.handle(asked)
        assert refusal.value.code == "refused"
    assert not bed.node.jobs[JOB].tasks
