"""Nodes and origins that go and come back, and jobs on several hosts."""

from __future__ import annotations

import pytest
from msgspec import structs

from master.core import events as e
from master.core.instructions import Hangup, SendDecisions
from master.http_documents import Memory
from master.status import status_document
from penstock.model import ContainerSpec, KindAmounts, TaskRequest
from penstock.wire import master_api as api
from penstock.wire.agent_api import StageProgress
from penstock.wire.errors import RpcError
from tests.unit.master.cluster_bed import MB, Bed, bed, command, job_state, load, placed_task, task

# ---------------------------------------------------------------- nodes that go


def test_a_node_that_comes_back_in_time_has_lost_nothing() -> None:
    b = bed("a", "b", node_timeout_s=5.0)
    b.job("a")
    b.ready("a", task("t", 100, nodes=("b",)))
    b.round()
    b.serve(e.NodeAway("b"))
    b.heartbeat("a")
    b.round(4.0)
    placed = placed_task("t", memory=100, command=False)
    b.node("b", placed=[placed], load=load(promised_memory_bytes=100 * MB))
    b.heartbeat("a")
    b.round(4.0)
    assert b.decisions_of(api.TellEnded) == []
    assert b.decisions_of(api.Withdraw) == []
    assert status_document(b.cluster, b.now).nodes["b"].memory_free_bytes == 900 * MB


def test_a_lost_node_loses_framework_tasks_and_commands_run_again_three_times() -> None:
    b = bed("a", "b", node_timeout_s=5.0)
    b.job("a")
    b.ready("a", task("t", nodes=("b",)), command("c", nodes=("b",)))
    for attempt in range(3):
        assert ("c", "b") in b.round()
        b.serve(e.NodeAway("b"))
        b.heartbeat("a")
        b.round(4.0)
        b.heartbeat("a")
        b.round(2.0)
        ends = [(d.task, d.ended.by) for _, d in b.decisions_of(api.TellEnded)]
        assert ends == [("t", "lost"), ("c", "lost")][: 1 + (attempt == 2)]
        b.node("b")
    assert "3 times" in b.decisions_of(api.TellEnded)[-1][1].ended.reason
    assert status_document(b.cluster, b.now).decisions["placed_again"] == 2


def test_a_silent_node_is_hung_up_on() -> None:
    b = bed("a", node_timeout_s=5.0)
    b.round(4.0)
    assert not [i for i in b.other if isinstance(i, Hangup)]
    b.round(2.0)
    assert [i.node for i in b.other if isinstance(i, Hangup)] == ["a"]
    assert "a" not in b.cluster.nodes


def test_a_job_whose_origin_is_lost_is_over() -> None:
    b = bed("a", "b", node_timeout_s=5.0)
    b.job("a", memory=500 * MB)
    b.ready("a", command("c", nodes=("b",)))
    b.round()
    b.serve(e.NodeAway("a"))
    b.heartbeat("b")
    b.round(4.0)
    b.heartbeat("b")
    b.round(2.0)
    assert [(node, d.task) for node, d in b.decisions_of(api.Withdraw)] == [("b", "c")]
    assert status_document(b.cluster, b.now).memory.reserved_bytes == 0


def test_state_is_rebuilt_from_registrations_in_any_order() -> None:
    placed = placed_task("t", memory=100, remaining=KindAmounts(cpu=5.0), command=False)
    stages = [StageProgress(stage="s", tasks=3, done=1), StageProgress(stage="r", tasks=1, after=["s"])]
    state = job_state("j", 300 * MB, 7.0, priority=-7.0, admitted=True, stages=stages)
    awaited = api.AwaitedTask(job="j", stage="s", request=task("t", 100), node="b")
    more = {
        "jobs": [state],
        "awaited": [awaited],
        "ready": [api.ReadyTasks(job="j", stage="s", tasks=[task("u", 100)])],
    }
    here = {"placed": [placed], "load": load(promised_memory_bytes=100 * MB)}
    for order in (("a", "b"), ("b", "a")):
        b = Bed()
        for name in order:
            b.node(name, **(more if name == "a" else here))
        status = status_document(b.cluster, b.now)
        row = structs.asdict(status.jobs["j"])
        assert row | {"waits": "", "reason": ""} == {
            "name": "j", "user": "u", "origin": "a", "state": "running", "waits": "", "memory_bytes": 300 * MB,
            "rank": 1, "reason": "", "queue": None, "expected_left_s": None, "known_jobs": None,
            "submitted_at": 7.0, "ready": 1, "placed": 1, "stages": {"s": 1},
            "progress": [stage.row() for stage in stages],
            "priority": -7.0, "service_container_s": 0.0, "slots": 0, "reservation": "",
        }  # fmt: skip
        assert status.nodes["b"].memory_free_bytes == 900 * MB
        assert status.memory == Memory(reservable_bytes=2000 * MB, reserved_bytes=300 * MB)
        said = {(decision.priority, decision.tenant) for _, decision in b.decisions_of(api.SetPriority)}
        assert said == {(-7.0, "")} and len(b.sent) <= 2, "only that it has no tenant, as it may have had with the last"
        assert [name for name, _ in b.round()] == ["u"]


def test_large_environments_are_sent_in_several_requests() -> None:
    b = bed("a")
    b.job("a")
    spec = ContainerSpec(argv=("true",), env={"X": "x" * 300_000})
    b.ready("a", *[TaskRequest(task=f"c{i}", usage=KindAmounts(), command=spec) for i in range(4)])
    b.answering = False
    instructions = b.cluster.handle(e.RoundDue(1.0), 1.0)
    sizes = [len(i.decisions) for i in instructions if isinstance(i, SendDecisions)]
    assert sizes == [3, 1]
    assert [held.assigned_in for held in b.cluster.nodes["a"].held.values()] == [2, 2, 2, 3]


# ---------------------------------------------------------------- jobs on several hosts


def test_a_node_that_joins_a_job_gets_its_place() -> None:
    b = bed("a", "b")
    b.job("a", at=100.0)
    assert b.serve(e.Received("b", api.JoinJob(job="j", user="u"))) == []
    assert b.cluster.joined("j") == api.JobJoined(name="j", user="u", priority=-100.0)
    assert set(b.cluster.jobs["j"].hosts) == {"a", "b"}


def test_an_unknown_job_or_that_of_another_user_is_not_joined() -> None:
    b = bed("a", "b")
    b.job("a")
    for job, user, says in (("k", "u", "unknown job 'k'"), ("j", "other", "belongs to u")):
        with pytest.raises(RpcError, match=says):
            b.serve(e.Received("b", api.JoinJob(job=job, user=user)))
    b.serve(e.Received("b", api.JoinJob(job="j", user="")))  # an operator
    with pytest.raises(RpcError, match="unknown job"):
        b.serve(e.Received("a", api.JoinJob(job="j", user="u")))  # its origin, which must have dropped it
    assert "b" in b.cluster.jobs["j"].hosts
