"""The master says that a job was cancelled: what the node has of it ends, and its clients hear who did it."""

from __future__ import annotations

import pytest

from agent.core import Node
from agent.core import events as e
from agent.core.instructions import Grant, Instruction, Notify, Reply, TellMaster
from agent.core.settings import NodeSettings
from penstock.model import Capacity, ContainerSpec, EndedBy, KindAmounts, MonotaskSpec, ResourceKind, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire import master_api as api
from penstock.wire.agent_api import RegisterJob, Submit
from penstock.wire.errors import RpcError
from penstock.wire.jobs_api import CancelledBy, LeaveJob

OWNER, OTHER = 1, 2


@pytest.fixture
def node() -> Node:
    capacity = Capacity(cores=1, memory_bytes=10**9, disk_slots=1, network_slots=1)
    made = Node(NodeSettings(node="n", instance="i", capacity=capacity, has_master=True))
    for session in (OWNER, OTHER):
        made.handle(e.SessionOpened(session, "u", session, "", False), 0.0)
    return made


def registered(node: Node, session: int) -> str:
    [reply] = [
        i for i in node.handle(e.JobRegistered(session, RegisterJob(name="x"), 0.0), 0.0) if isinstance(i, Reply)
    ]
    return str(reply.result.job)  # type: ignore[attr-defined] # the answer to a registration


def submit(node: Node, session: int, name: str, *ids: int) -> list[Instruction]:
    specs = [MonotaskSpec(id=one, kind=ResourceKind.DISK, input_bytes=10**6) for one in ids]
    return node.handle(e.Asked(m.SUBMIT, session, Submit(job=name, monotasks=specs)), 0.0)


def assign(node: Node, name: str, task: str, origin: str = "n") -> None:
    request = TaskRequest(
        task=task, usage=KindAmounts(cpu=1.0), memory_bytes=10**6, command=ContainerSpec(argv=("sleep", "9"))
    )
    decision = api.Assign(job=name, stage="s", user="u", origin=origin, priority=0.0, request=request)
    node.handle(e.Decided(1, [decision]), 0.0)


def cancel(node: Node, name: str) -> tuple[list[Instruction], list[api.Refusal]]:
    instructions = node.handle(e.Decided(2, [api.CancelJob(job=name, by="ann")]), 1.0)
    [reply] = [each for each in instructions if isinstance(each, Reply)]
    assert isinstance(reply.result, api.Decided)
    return instructions, reply.result.refused


def test_all_of_it_ends_and_its_clients_hear_who_did_it(node: Node) -> None:
    name, next_one = registered(node, OWNER), registered(node, OTHER)
    node.handle(e.JobRegistered(OTHER, RegisterJob(name="x", job=name), 0.0), 0.0)
    submit(node, OWNER, name, 1, 2)
    submit(node, OTHER, next_one, 1)
    assign(node, name, "runs")
    assign(node, name, "queued")
    [record] = node.containers.live.values()
    node.handle(e.ContainerStarted(record.container, 7, {}, 0.0), 0.0)
    instructions, refused = cancel(node, name)
    assert refused == []
    told = [each for each in instructions if isinstance(each, Notify) and each.method == "job_cancelled"]
    assert told == [Notify(one, "job_cancelled", CancelledBy(job=name, by="ann")) for one in (OWNER, OTHER)]
    use = api.JobUse(job=name, service_s=2.0)
    ended = [each.params for each in instructions if isinstance(each, TellMaster)]
    assert api.JobEnded(job=name, why="cancelled by ann", use=use) in ended
    assert [each.grants.ids for each in instructions if isinstance(each, Grant)] == [[1]], "who waited has the slot"
    assert name not in node.jobs
    assert [held.task for held in node.held.of_job(name)] == ["runs"], "until it is dead"
    assert (record.stopping_by, record.stopping_reason) == (EndedBy.CANCELLED, "cancelled by ann")
    node.handle(e.ContainerExited(record.container, None, 9, 0.0, 0, 0, 2.0), 2.0)
    assert not node.held.of_job(name)
    assert next_one in node.jobs


def test_a_guest_s_job_ends_here_and_only_here(node: Node) -> None:
    """Its origin says itself that it has ended."""
    node.handle(e.JobIntroduced("far-1", "x", "u", 0.0), 0.0)
    node.handle(e.JobRegistered(OWNER, RegisterJob(name="x", job="far-1"), 0.0), 0.0)
    assign(node, "far-1", "runs", origin="far")
    instructions, refused = cancel(node, "far-1")
    assert refused == []
    assert [each.session for each in instructions if isinstance(each, Notify)] == [OWNER]
    assert not any(isinstance(each, TellMaster) and each.method == "job_ended" for each in instructions)
    assert "far-1" not in node.jobs
    assert node.sessions[OWNER].jobs == set()


def test_one_that_is_not_here_is_refused_and_nothing_happens(node: Node) -> None:
    instructions, [refused] = cancel(node, "nobody-1")
    assert refused.reason == "unknown job 'nobody-1'"
    assert len(instructions) == 1


def test_the_master_hears_why_a_job_ended_that_its_framework_did_not_end(node: Node) -> None:
    name = registered(node, OWNER)
    instructions = node.handle(e.SessionClosed(OWNER), 1.0)
    ended = [each.params for each in instructions if isinstance(each, TellMaster)]
    use = api.JobUse(job=name, service_s=0.0, last=True)
    assert ended == [api.JobEnded(job=name, why="its client without a name disconnected", use=use)]


def ends(node: Node, session: int) -> list[object]:
    instructions = node.handle(e.SessionClosed(session), 1.0)
    return [each.params for each in instructions if isinstance(each, TellMaster) and each.method == "job_ended"]


def test_a_job_is_done_once_its_last_connection_left_it_in_order(node: Node) -> None:
    name = registered(node, OWNER)
    node.handle(e.JobRegistered(OTHER, RegisterJob(name="x", job=name), 0.0), 0.0)
    node.handle(e.Asked(m.LEAVE_JOB, OWNER, LeaveJob(job=name)), 0.0)
    assert name in node.jobs, "it is left when the connection closes"
    assert ends(node, OWNER) == []
    node.handle(e.Asked(m.LEAVE_JOB, OTHER, LeaveJob(job=name, merged_into="n-9")), 0.0)
    use = api.JobUse(job=name, service_s=0.0, last=True)
    assert ends(node, OTHER) == [api.JobEnded(job=name, done=True, merged_into="n-9", use=use)]


def test_a_job_whose_last_connection_broke_is_not_done_though_others_left_in_order(node: Node) -> None:
    name = registered(node, OWNER)
    node.handle(e.JobRegistered(OTHER, RegisterJob(name="x", job=name), 0.0), 0.0)
    node.handle(e.Asked(m.LEAVE_JOB, OWNER, LeaveJob(job=name)), 0.0)
    assert ends(node, OWNER) == []
    use = api.JobUse(job=name, service_s=0.0, last=True)
    assert ends(node, OTHER) == [api.JobEnded(job=name, why="its client without a name disconnected", use=use)]


def test_only_a_job_of_the_connection_can_be_left_and_not_for_itself(node: Node) -> None:
    name = registered(node, OWNER)
    for session, job, merged_into in ((OTHER, name, ""), (OWNER, "n-9", ""), (OWNER, name, name)):
        with pytest.raises(RpcError):
            node.handle(e.Asked(m.LEAVE_JOB, session, LeaveJob(job=job, merged_into=merged_into)), 0.0)
    assert not node.sessions[OWNER].left


def test_a_job_goes_on_when_its_agent_stops(node: Node) -> None:
    name = registered(node, OWNER)
    assert node.handle(e.SessionClosed(OWNER, stopping=True), 1.0) == []
    assert name in node.jobs, "the next agent finds it in the journal, and its framework joins it again"


def test_a_job_that_runs_on_slack_alone_reserves_no_memory(node: Node) -> None:
    asked = RegisterJob(name="x", memory_bytes=10**9, opportunistic="only")
    instructions = node.handle(e.JobRegistered(OWNER, asked, 0.0), 0.0)
    [told] = [each.params for each in instructions if isinstance(each, TellMaster)]
    assert isinstance(told, api.JobState)
    assert told.memory_bytes == 0
