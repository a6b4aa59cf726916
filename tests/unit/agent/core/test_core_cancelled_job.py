"""The master reports that a job was cancelled: its work on the node ends, and its clients get the user's name."""

from __future__ import annotations

import pytest
from msgspec import structs

from agent.core import events as e
from agent.core.instructions import Grant, Instruction, Notify, Reply, SendToMaster
from penstock.model import Capacity, EndedBy, ResourceKind
from penstock.wire import agent_methods as m
from penstock.wire import master_api as api
from penstock.wire.agent_api import CancelledBy, RegisterJob
from penstock.wire.errors import RpcError
from penstock.wire.jobs_api import LeaveJob
from tests.fakes.node_bed import NodeBed

OWNER, OTHER = 1, 2


@pytest.fixture
def bed() -> NodeBed:
    capacity = Capacity(cores=1, memory_bytes=10**9, disk_slots=1, network_slots=1)
    made = NodeBed(capacity=capacity)
    for session in (OWNER, OTHER):
        made.open(session)
    return made


def assign(bed: NodeBed, name: str, task: str, origin: str = "n") -> None:
    bed.command(task, memory_bytes=10**6, job=name, origin=origin)


def cancel(bed: NodeBed, name: str) -> tuple[list[Instruction], list[api.Refusal]]:
    bed.now = 1.0
    instructions = bed.handle(e.Decided(bed.node.decided + 1, [api.CancelJob(job=name, by="ann")], 0.0))
    [reply] = [each for each in instructions if isinstance(each, Reply)]
    assert isinstance(reply.result, api.Decided)
    return instructions, reply.result.refused


def job_ends(instructions: list[Instruction]) -> list[api.JobEnded]:
    """Return the reported ends of jobs, without the record of the job."""
    reports = [each.params for each in instructions if isinstance(each, SendToMaster)]
    return [structs.replace(each, at_end=None) for each in reports if isinstance(each, api.JobEnded)]


def test_all_of_it_ends_and_its_clients_get_the_name_of_the_user_who_cancelled(bed: NodeBed) -> None:
    name, next_one = bed.register(OWNER), bed.register(OTHER)
    bed.register(OTHER, job=name)
    bed.submit(OWNER, name, 1, 2, kind=ResourceKind.DISK, size=10**6)
    bed.submit(OTHER, next_one, 1, kind=ResourceKind.DISK, size=10**6)
    assign(bed, name, "runs")
    assign(bed, name, "queued")
    [record] = bed.node.containers.live.values()
    bed.handle(e.ContainerStarted(record.container, 7, {}, 0.0))
    instructions, refused = cancel(bed, name)
    assert refused == []
    told = [each for each in instructions if isinstance(each, Notify) and isinstance(each.params, CancelledBy)]
    assert told == [Notify(one, CancelledBy(job=name, by="ann")) for one in (OWNER, OTHER)]
    use = api.JobUse(job=name, service_s=2.0)
    assert job_ends(instructions) == [api.JobEnded(job=name, why="cancelled by ann", use=use)]
    assert [each.grants.ids for each in instructions if isinstance(each, Grant)] == [[1]], (
        "the waiting job has the slot"
    )
    assert name not in bed.node.jobs
    assert [held.task for held in bed.node.held.of_job(name)] == ["runs"], "until it is dead"
    assert (record.stopping_by, record.stopping_reason) == (EndedBy.CANCELLED, "cancelled by ann")
    bed.handle(e.ContainerExited(record.container, None, 9, 0.0, 0, 0, 2.0))
    assert not bed.node.held.of_job(name)
    assert next_one in bed.node.jobs


def test_a_guest_s_job_ends_here_and_only_here(bed: NodeBed) -> None:
    """Its origin reports the end itself."""
    bed.handle(e.JobIntroduced("far-1", "x", "eve", 0.0))
    bed.register(OWNER, job="far-1")
    assign(bed, "far-1", "runs", origin="far")
    instructions, refused = cancel(bed, "far-1")
    assert refused == []
    assert [each.session for each in instructions if isinstance(each, Notify)] == [OWNER]
    assert job_ends(instructions) == []
    assert "far-1" not in bed.node.jobs
    assert bed.node.sessions[OWNER].jobs == set()


class TestAGuestThatGoesOn:
    """The master dies before the job's origin has received the cancellation, and the next one assigns more of it."""

    @pytest.fixture(params=[{}, {"opportunistic": True}], ids=["regular", "on slack"])
    def container(self, request: pytest.FixtureRequest, bed: NodeBed) -> str:
        """Return the container of the task `old`, which is being killed."""
        bed.command("old", **request.param)
        bed.begin(container := bed.container("old"))
        cancel(bed, NodeBed.JOB)
        return container

    def test_another_task_gets_the_slot_and_keeps_it_when_the_cancelled_one_is_dead(
        self, bed: NodeBed, container: str
    ) -> None:
        assert bed.command("new") == []
        bed.exit(container)
        assert [ended.task for ended in bed.to_master(api.CommandEnded)] == ["old"]
        assert bed.node.queues.idle().cpu == 0
        bed.exit(bed.container("new"))
        assert bed.node.queues.idle().cpu == 1

    def test_the_same_task_is_placed_once_its_former_run_is_dead(self, bed: NodeBed, container: str) -> None:
        assert bed.command("old") == ["it is still being stopped here"]
        bed.exit(container)
        bed.done.clear()
        assert bed.command("old") == []
        assert bed.container("old") != container
        assert bed.to_master(api.CommandEnded) == []

    def test_a_command_that_is_being_stopped_is_not_promoted(self, bed: NodeBed, container: str) -> None:
        bed.command("new", opportunistic=True)
        opportunistic = bed.record("old").opportunistic
        [*refused] = bed.decide(api.Promote(job=NodeBed.JOB, task="old"))
        assert refused == (["it is still being stopped here"] if opportunistic else [])


def test_a_container_of_an_ended_run_does_not_end_the_next_run(bed: NodeBed) -> None:
    """The agent dies when it has recorded the end of the task, and not yet that of its container."""
    bed.command("t", opportunistic=True)
    bed.begin(first := bed.container("t"))
    running = bed.of("containers")
    bed.exit(first)
    bed.restart(first, containers=running)
    assert bed.command("t", opportunistic=True) == []
    bed.exit(first)
    assert bed.container("t") != first
    assert bed.node.queues.job_counts(NodeBed.JOB)["running"] == 1


def test_one_that_is_not_here_is_refused_and_nothing_happens(bed: NodeBed) -> None:
    instructions, [refused] = cancel(bed, "nobody-1")
    assert refused.reason == "unknown job 'nobody-1'"
    assert len(instructions) == 1


def test_the_master_gets_the_reason_for_the_end_of_a_job_that_its_framework_did_not_end(bed: NodeBed) -> None:
    name = bed.register(OWNER)
    instructions = bed.handle(e.SessionClosed(OWNER))
    use = api.JobUse(job=name, service_s=0.0, last=True)
    assert job_ends(instructions) == [api.JobEnded(job=name, why="its client c disconnected", use=use)]


def ends(bed: NodeBed, session: int) -> list[api.JobEnded]:
    return job_ends(bed.handle(e.SessionClosed(session)))


def test_a_job_is_done_once_its_last_connection_left_it_in_order(bed: NodeBed) -> None:
    name = bed.register(OWNER)
    bed.register(OTHER, job=name)
    bed.handle(e.Requested(m.LEAVE_JOB, OWNER, LeaveJob(job=name)))
    assert name in bed.node.jobs, "it is left when the connection closes"
    assert ends(bed, OWNER) == []
    bed.handle(e.Requested(m.LEAVE_JOB, OTHER, LeaveJob(job=name, merged_into="n-9")))
    use = api.JobUse(job=name, service_s=0.0, last=True)
    assert ends(bed, OTHER) == [api.JobEnded(job=name, done=True, merged_into="n-9", use=use)]


def test_a_job_whose_last_connection_broke_is_not_done_though_others_left_in_order(bed: NodeBed) -> None:
    name = bed.register(OWNER)
    bed.register(OTHER, job=name)
    bed.handle(e.Requested(m.LEAVE_JOB, OWNER, LeaveJob(job=name)))
    assert ends(bed, OWNER) == []
    use = api.JobUse(job=name, service_s=0.0, last=True)
    assert ends(bed, OTHER) == [api.JobEnded(job=name, why="its client c disconnected", use=use)]


def test_only_a_job_of_the_connection_can_be_left_and_not_for_itself(bed: NodeBed) -> None:
    name = bed.register(OWNER)
    for session, job, merged_into in ((OTHER, name, ""), (OWNER, "n-9", ""), (OWNER, name, name)):
        with pytest.raises(RpcError):
            bed.handle(e.Requested(m.LEAVE_JOB, session, LeaveJob(job=job, merged_into=merged_into)))
    assert bed.node.sessions[OWNER].left(name) is None


def test_a_job_goes_on_when_its_agent_stops(bed: NodeBed) -> None:
    name = bed.register(OWNER)
    assert bed.handle(e.SessionClosed(OWNER, stopping=True)) == []
    assert name in bed.node.jobs, "the next agent finds it in the journal, and its framework joins it again"


def test_a_job_that_runs_on_slack_alone_reserves_no_memory(bed: NodeBed) -> None:
    asked = RegisterJob(name="x", memory_bytes=10**9, opportunistic="only")
    instructions = bed.handle(e.JobRegistered(OWNER, asked, 0.0))
    [told] = [each.params for each in instructions if isinstance(each, SendToMaster)]
    assert isinstance(told, api.JobState)
    assert told.memory_bytes == 0
