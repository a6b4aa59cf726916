"""What jobs attain on a node, as its heartbeats tell it."""

from __future__ import annotations

import pytest

from agent.core import Node
from agent.core import events as e
from agent.core import instructions as i
from agent.core.snapshot import ContainerUse, Snapshot
from penstock.model import ContainerSpec, KindAmounts, MonotaskSpec, ResourceKind, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire import master_api as api
from penstock.wire.agent_api import Complete, Completion, JobRef, Launch, RegisterJob, Submit
from tests.fakes.node_bed import node_with_a_job


def test_slots_times_time_and_only_what_changed() -> None:
    node, job = node_with_a_job(cores=2)
    assert [(use.service_s, use.running) for use in node.load(0.0).jobs] == [(0.0, 0)]
    assert node.load(1.0).jobs == [], "nothing changed"
    specs = [MonotaskSpec(id=number, kind=ResourceKind.CPU, input_bytes=1) for number in range(3)]
    node.handle(e.Asked(m.SUBMIT, 1, Submit(job=job, monotasks=specs)), 1.0)
    assert [(use.service_s, use.running) for use in node.load(3.0).jobs] == [(pytest.approx(4.0), 2)]
    node.handle(e.Asked(m.COMPLETE, 1, Complete(job=job, monotasks=[Completion(id=0), Completion(id=1)])), 3.0)
    assert [(use.service_s, use.running) for use in node.load(4.0).jobs] == [(pytest.approx(5.0), 1)]


def test_what_comes_and_goes_between_two_heartbeats_counts() -> None:
    node, job = node_with_a_job(cores=2)
    node.load(0.0)
    node.handle(
        e.Asked(m.SUBMIT, 1, Submit(job=job, monotasks=[MonotaskSpec(id=1, kind=ResourceKind.CPU, input_bytes=1)])), 1.0
    )
    node.handle(e.Asked(m.COMPLETE, 1, Complete(job=job, monotasks=[Completion(id=1)])), 1.25)
    assert [(use.service_s, use.running) for use in node.load(2.0).jobs] == [(0.25, 0)]
    assert node.load(3.0).jobs == []


def test_a_new_connection_is_told_of_all_jobs_and_what_ended_is_forgotten() -> None:
    node, job = node_with_a_job(cores=2)
    assert len(node.load(0.0).jobs) == 1
    assert node.load(1.0).jobs == []
    node.decided = 7
    node.link_opens()
    assert [use.job for use in node.load(2.0).jobs] == [job]
    assert node.decided == 0
    node.handle(e.Asked(m.END_JOB, 1, JobRef(job=job)), 3.0)
    node.link_opens()
    assert node.load(4.0).jobs == []


def test_the_processor_time_of_its_containers_counts_where_it_is_more_than_slot_time() -> None:
    node, job = node_with_a_job(cores=2)
    node.handle(e.SessionOpened(2, "eve", 1000, "c"), 0.0)
    [started] = [
        each.container
        for each in node.handle(e.Asked(m.LAUNCH, 2, Launch(container=ContainerSpec(argv=("x",)))), 0.0)
        if isinstance(each, i.StartContainer)
    ]
    node.handle(e.ContainerStarted(started, 7, {}, 0.0), 0.0)
    node.handle(e.SessionOpened(3, "eve", 1000, "c", container=started), 0.0)
    node.handle(e.JobRegistered(3, RegisterJob(name="j", job=job), 0.0), 0.0)
    node.load(0.0)

    def told(at: float, cpu_s: float) -> list[float]:
        use = {started: ContainerUse(cpu_seconds=cpu_s)}
        node.handle(e.Sampled(Snapshot(at, 1.0, containers=use), at), at)
        return [use.service_s for use in node.load(at).jobs]

    assert told(1.0, 1.5) == [1.5]
    assert told(2.0, 1.51) == [], "too little to be told"
    assert told(3.0, 3.0) == [3.0]
    node.handle(
        e.Asked(m.SUBMIT, 1, Submit(job=job, monotasks=[MonotaskSpec(id=1, kind=ResourceKind.CPU, input_bytes=1)])), 3.0
    )
    assert told(5.0, 4.0) == [4.0]
    assert told(20.0, 4.0) == [pytest.approx(17.0)], "by now the slot-time is more"
    node.handle(e.ContainerExited(started, 0, None, 30.0, 0, 0, 21.0), 21.0)
    node.handle(e.Sampled(Snapshot(22.0, 1.0), 22.0), 22.0)
    assert [use.service_s for use in node.load(22.0).jobs] == [30.0], "what has ended counts"


def lend(node: Node, job: str) -> str:
    """Processes of the job that were started by hand; their container."""
    [lent] = [
        each.container
        for each in node.handle(e.LendRequested(1, job, 77, ("python",)), 0.0)
        if isinstance(each, i.AdoptProcess)
    ]
    node.handle(e.ContainerStarted(lent, 77, {}, 0.0), 0.0)
    return lent


@pytest.mark.parametrize(("ranked", "told_s"), [(True, [1.5, 1.5, 2.5]), (False, [9.0, 9.0, 9.0])])
def test_where_jobs_are_ranked_a_slot_that_is_held_counts_only_while_nothing_measures_its_job(
    ranked: bool, told_s: list[float]
) -> None:
    """The last of them all holds a disk's slot for long, as its process gets little of the processors."""
    node, job = node_with_a_job(cores=2, ranked=ranked)
    lent = lend(node, job)
    node.handle(
        e.Asked(
            m.SUBMIT, 1, Submit(job=job, monotasks=[MonotaskSpec(id=1, kind=ResourceKind.DISK, input_bytes=1 << 20)])
        ),
        0.0,
    )
    use = {lent: ContainerUse(cpu_seconds=1.5)}
    node.handle(e.Sampled(Snapshot(9.0, 1.0, containers=use), 9.0), 9.0)
    told = [use.service_s for use in node.load(9.0).jobs]
    node.handle(e.Asked(m.COMPLETE, 1, Complete(job=job, monotasks=[Completion(id=1)])), 9.0)
    told += [use.service_s for use in node.load(9.0).jobs]
    node.handle(e.GivenBack(lent, 2.5, 0, 9.5, ""), 9.5)
    told.append(ended(node.handle(e.Asked(m.END_JOB, 1, JobRef(job=job)), 9.5)).service_s)
    assert told == told_s


# ---------------------------------------------------------------- to the end


def assigned(node: Node, job: str, task: str, number: int, at: float) -> str:
    """A command that the master placed here, and that runs; its container."""
    request = TaskRequest(task=task, usage=KindAmounts(cpu=1.0), command=ContainerSpec(argv=("x",)))
    assign = api.Assign(job=job, stage="s", user="eve", origin=job.rsplit("-", 2)[0], priority=0.0, request=request)
    [container] = [
        each.container for each in node.handle(e.Decided(number, [assign]), at) if isinstance(each, i.StartContainer)
    ]
    node.handle(e.ContainerStarted(container, 7, {}, at), at)
    return container


def ended(instructions: list[i.Instruction]) -> api.JobUse:
    [told] = [each.params for each in instructions if isinstance(each, i.TellMaster) and each.method == "job_ended"]
    assert isinstance(told, api.JobEnded) and told.use is not None
    return told.use


def test_the_end_of_a_job_carries_what_ended_since_the_last_sample() -> None:
    node, job = node_with_a_job(cores=2)
    first, second = assigned(node, job, "t1", 1, 0.0), assigned(node, job, "t2", 2, 0.0)
    use = {first: ContainerUse(cpu_seconds=0.5), second: ContainerUse(cpu_seconds=0.25)}
    node.handle(e.Sampled(Snapshot(0.5, 1.0, containers=use), 0.5), 0.5)
    node.handle(e.ContainerExited(first, 0, None, 1.75, 0, 0, 0.9), 0.9)
    assert [use.service_s for use in node.load(0.9).jobs] == [2.0], "the end of a container counts at once"
    node.handle(e.ContainerExited(second, 0, None, 2.5, 0, 0, 1.0), 1.0)
    told = ended(node.handle(e.Asked(m.END_JOB, 1, JobRef(job=job)), 1.0))
    assert told == api.JobUse(job=job, service_s=4.25, last=True)
    assert node.load(1.1).jobs == [], "it is told once"


def test_the_end_of_a_job_carries_slot_time_until_then_where_that_is_more() -> None:
    node, job = node_with_a_job(cores=2)
    node.handle(
        e.Asked(m.SUBMIT, 1, Submit(job=job, monotasks=[MonotaskSpec(id=1, kind=ResourceKind.CPU, input_bytes=1)])), 1.0
    )
    assert ended(node.handle(e.Asked(m.END_JOB, 1, JobRef(job=job)), 1.75)) == api.JobUse(
        job=job, service_s=0.75, last=True
    )


def test_a_container_that_ends_after_its_job_is_told_of_when_it_has_ended() -> None:
    node, job = node_with_a_job(cores=2)
    first, second = assigned(node, job, "t1", 1, 0.0), assigned(node, job, "t2", 2, 0.0)
    use = {first: ContainerUse(cpu_seconds=3.0), second: ContainerUse(cpu_seconds=3.0)}
    node.handle(e.Sampled(Snapshot(3.0, 1.0, containers=use), 3.0), 3.0)
    assert ended(node.handle(e.Asked(m.END_JOB, 1, JobRef(job=job)), 3.0)) == api.JobUse(job=job, service_s=6.0)
    assert node.load(3.0).jobs == []
    node.handle(e.ContainerExited(first, None, 9, 3.5, 0, 0, 3.1), 3.1)
    node.handle(e.Sampled(Snapshot(4.0, 1.0, containers={second: ContainerUse(cpu_seconds=4.0)}), 4.0), 4.0)
    assert node.load(4.0).jobs == []
    node.handle(e.ContainerExited(second, None, 9, 4.25, 0, 0, 4.1), 4.1)
    assert node.load(4.2).jobs == [api.JobUse(job=job, service_s=7.75, last=True)]
    assert node.load(4.3).jobs == []


@pytest.mark.parametrize("why_not", ["", "its cgroup is gone"])
def test_lent_processes_count_until_they_are_given_back(why_not: str) -> None:
    node, job = node_with_a_job(cores=2)
    lent = lend(node, job)
    node.handle(e.Sampled(Snapshot(1.0, 1.0, containers={lent: ContainerUse(cpu_seconds=1.0)}), 1.0), 1.0)
    assert ended(node.handle(e.Asked(m.END_JOB, 1, JobRef(job=job)), 1.9)) == api.JobUse(job=job, service_s=1.0)
    node.handle(e.GivenBack(lent, 1.875, 0, 1.9, why_not), 1.9)
    assert node.load(2.0).jobs == [api.JobUse(job=job, service_s=1.875, last=True)]


def test_a_job_of_another_origin_has_its_last_told_and_begins_at_0_when_it_comes_again() -> None:
    node, _ = node_with_a_job(cores=2)
    node.load(0.0)
    first = assigned(node, "b-y-1", "t1", 1, 0.0)
    node.handle(e.ContainerExited(first, 0, None, 1.5, 0, 0, 0.5), 0.5)
    second = assigned(node, "b-y-1", "t2", 2, 0.5)
    assert node.load(0.5).jobs == [
        api.JobUse(job="b-y-1", service_s=1.5, last=True), api.JobUse(job="b-y-1", service_s=0.0, running=1)
    ]  # fmt: skip
    node.handle(e.ContainerExited(second, 0, None, 1.25, 0, 0, 0.75), 0.75)
    assert node.load(0.75).jobs == [api.JobUse(job="b-y-1", service_s=1.25, last=True)]


def test_the_last_of_a_job_waits_for_a_master_that_reads_it() -> None:
    node, _ = node_with_a_job(cores=2)
    first = assigned(node, "b-y-1", "t1", 1, 0.0)
    node.handle(e.ContainerExited(first, 0, None, 1.5, 0, 0, 0.5), 0.5)
    node.link_opens()
    assert [use.job for use in node.load(1.0).jobs if use.job.startswith("b")] == []
    node.attained.lasts_read = True
    assert node.load(1.0).jobs == [api.JobUse(job="b-y-1", service_s=1.5, last=True)]
