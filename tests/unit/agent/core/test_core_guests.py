"""Jobs of another origin that frameworks here join: who may, and what becomes of them."""

from __future__ import annotations

import pytest

from agent.core import Node
from agent.core import events as e
from agent.core import instructions as i
from agent.core.settings import NodeSettings
from penstock.model import Capacity, KindAmounts, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Place, RegisterJob, TaskRefs
from penstock.wire.errors import RpcError
from penstock.wire.master_api import Assign

JOB = "other-1"


@pytest.fixture
def node() -> Node:
    made = Node(NodeSettings(node="n", instance="x", capacity=Capacity(cores=4, memory_bytes=1 << 30), has_master=True))
    made.handle(e.SessionOpened(1, "eve", 1000, "dask"), 0.0)
    made.handle(e.SessionOpened(2, "bob", 1001, "dask"), 0.0)
    return made


def join(node: Node, session: int) -> list[i.Instruction]:
    node.handle(e.JobIntroduced(JOB, "dask", "eve", 7.0), 0.0)
    return node.handle(e.JobRegistered(session, RegisterJob(name="dask", job=JOB), 0.0), 0.0)


def test_it_is_joined_and_forgotten_with_the_last_connection_while_its_origin_hears_nothing(node: Node) -> None:
    join(node, 1)
    assert node.jobs[JOB].record.priority == 7.0
    assert node.job_states() == [], "it is its origin that speaks for it"
    after = node.handle(e.SessionClosed(1), 1.0)
    assert JOB not in node.jobs
    assert not [one for one in after if isinstance(one, i.TellMaster)]


def test_it_is_nobody_elses(node: Node) -> None:
    with pytest.raises(RpcError, match="belongs to eve"):
        join(node, 2)


def test_tasks_that_the_master_placed_stay_when_the_last_connection_goes(node: Node) -> None:
    join(node, 1)
    request = TaskRequest(task="t", usage=KindAmounts(cpu=1.0), memory_bytes=1 << 20)
    placed = Assign(job=JOB, stage="s", user="eve", origin="other", priority=7.0, request=request)
    node.handle(e.Decided(1, [placed]), 0.0)
    node.handle(e.SessionClosed(1), 1.0)
    assert [held.task for held in node.held.of_job(JOB)] == ["t"]
    assert JOB in node.jobs


def test_only_its_origin_asks_for_its_tasks(node: Node) -> None:
    join(node, 1)
    request = TaskRequest(task="t", usage=KindAmounts(cpu=1.0), memory_bytes=1 << 20)
    for asked in (
        e.Asked(m.PLACE, 1, Place(job=JOB, stage="s", tasks=[request], opportunistic="no")),
        e.Asked(m.CANCEL_TASKS, 1, TaskRefs(job=JOB, tasks=["t"])),
    ):
        with pytest.raises(RpcError, match="registered on another node") as refusal:
            node.handle(asked, 0.0)
        assert refusal.value.code == "refused"
    assert not node.jobs[JOB].tasks
