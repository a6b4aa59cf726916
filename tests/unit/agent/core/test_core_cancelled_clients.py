"""A client that had not read that its job was cancelled joins the job again, mostly at the next agent."""

from __future__ import annotations

import pytest

from agent.core import events as e
from agent.core.cancelled_jobs import MOST
from agent.core.instructions import Instruction, Notify, Reply
from penstock.wire import master_api as api
from penstock.wire.agent_api import CancelledBy, JobRegistered, RegisterJob
from penstock.wire.errors import ErrorCode, RpcError
from tests.fakes.node_bed import NodeBed

CLIENT = 1


@pytest.fixture
def bed() -> NodeBed:
    made = NodeBed()
    made.open(CLIENT)
    return made


def rejoin(bed: NodeBed, job: str, session: int = CLIENT) -> list[Instruction]:
    """Let a connection join a job that it may have had before."""
    return bed.handle(e.JobRegistered(session, RegisterJob(name="j", job=job), bed.wall_s))


def cancelled(job: str, session: int = CLIENT, by: str = "ann") -> list[Instruction]:
    """What a client gets that joins a cancelled job: the notification, then an answer."""
    return [Notify(session, CancelledBy(job=job, by=by)), Reply(JobRegistered(job=job, admitted=False))]


def test_the_next_agent_sends_the_cancellation_and_registers_nothing(bed: NodeBed) -> None:
    doomed, other = bed.register(), bed.register()
    bed.decide(api.CancelJob(job=doomed, by="ann"))
    for _ in range(2):  # the client may not have read it from that agent, either
        bed.restart().open(CLIENT)
        assert rejoin(bed, doomed) == cancelled(doomed)
        assert list(bed.node.jobs) == [other]
        assert bed.register(job=other) == other
        assert bed.node.sessions[CLIENT].jobs == {other}
    assert bed.to_master(api.JobState) == []


def test_a_client_whose_connection_broke_without_a_restart_gets_it_too(bed: NodeBed) -> None:
    job = bed.register()
    bed.decide(api.CancelJob(job=job, by="ann"))
    bed.send(e.SessionClosed(CLIENT))
    bed.open(2)
    assert rejoin(bed, job, 2) == cancelled(job, 2)


def test_clients_of_a_job_from_another_node_get_it(bed: NodeBed) -> None:
    bed.send(e.JobIntroduced("far-1", "x", "eve", 0.0))
    bed.register(job="far-1")
    bed.decide(api.CancelJob(job="far-1", by="ann"))
    bed.restart().open(CLIENT)
    assert rejoin(bed, "far-1") == cancelled("far-1")


def test_a_job_that_comes_back_here_is_joined(bed: NodeBed) -> None:
    """The cancellation was lost with the master before the job's origin had it, and the job goes on."""
    bed.send(e.JobIntroduced("far-1", "x", "eve", 0.0))
    bed.decide(api.CancelJob(job="far-1", by="ann"))
    bed.command("t", job="far-1", origin="far")
    assert bed.register(job="far-1") == "far-1"
    assert bed.node.sessions[CLIENT].jobs == {"far-1"}
    assert "far-1" not in bed.node.cancelled_jobs
    assert bed.of("cancelled") == []


def test_only_its_user_and_operators_learn_who_cancelled_a_job(bed: NodeBed) -> None:
    job = bed.register()
    bed.decide(api.CancelJob(job=job, by="ann"))
    bed.open(2, user="mallory")
    bed.open(3, user="root", operator=True)
    with pytest.raises(RpcError, match=f"job '{job}' belongs to eve") as caught:
        rejoin(bed, job, 2)
    assert caught.value.code is ErrorCode.REFUSED
    assert rejoin(bed, job, 3) == cancelled(job, 3)


def test_the_latest_are_kept_here_and_in_the_journal(bed: NodeBed) -> None:
    jobs = []
    for _ in range(MOST + 1):
        jobs.append(bed.register())
        bed.decide(api.CancelJob(job=jobs[-1], by="ann"))
    for _ in range(2):
        assert [kept.job for kept in bed.of("cancelled")] == jobs[1:]
        with pytest.raises(RpcError, match="unknown job"):
            rejoin(bed, jobs[0])
        bed.restart().open(CLIENT)
    last = bed.register()
    bed.decide(api.CancelJob(job=last, by="bob"))
    assert [kept.job for kept in bed.of("cancelled")] == [*jobs[2:], last], "the next agent has the same order"
    assert rejoin(bed, last) == cancelled(last, by="bob")


def test_a_job_that_its_client_ended_is_unknown_afterwards(bed: NodeBed) -> None:
    job = bed.register()
    bed.send(e.SessionClosed(CLIENT))
    assert job not in bed.node.cancelled_jobs
    assert bed.of("cancelled") == []
