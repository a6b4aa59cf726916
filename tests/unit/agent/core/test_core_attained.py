"""What jobs attain on a node, as its heartbeats tell it."""

from __future__ import annotations

import pytest

from agent.core import Node
from agent.core import events as e
from agent.core import instructions as i
from agent.core.settings import NodeSettings
from agent.core.snapshot import ContainerUse, Snapshot
from penstock.model import Capacity, ContainerSpec, MonotaskSpec, ResourceKind
from penstock.wire.agent_api import Completion, JobRegistered, RegisterJob


def node_with_a_job() -> tuple[Node, str]:
    capacity = Capacity(cores=2.0, memory_bytes=2**30)
    node = Node(NodeSettings(node="a", instance="x", capacity=capacity, has_master=True))
    node.handle(e.SessionOpened(1, "u", 1000, "c"), 0.0)
    [registered] = [
        each.result
        for each in node.handle(e.JobRegistered(1, RegisterJob(name="j"), 0.0), 0.0)
        if isinstance(each, i.Reply)
    ]
    assert isinstance(registered, JobRegistered)
    return node, registered.job


def test_slots_times_time_and_only_what_changed() -> None:
    node, job = node_with_a_job()
    assert [(use.service_s, use.running) for use in node.load(0.0).jobs] == [(0.0, 0)]
    assert node.load(1.0).jobs == [], "nothing changed"
    specs = [MonotaskSpec(id=number, kind=ResourceKind.CPU, input_bytes=1) for number in range(3)]
    node.handle(e.Submitted(1, job, specs), 1.0)
    assert [(use.service_s, use.running) for use in node.load(3.0).jobs] == [(pytest.approx(4.0), 2)]
    node.handle(e.Completed(1, job, [Completion(id=0), Completion(id=1)]), 3.0)
    assert [(use.service_s, use.running) for use in node.load(4.0).jobs] == [(pytest.approx(5.0), 1)]


def test_what_comes_and_goes_between_two_heartbeats_counts() -> None:
    node, job = node_with_a_job()
    node.load(0.0)
    node.handle(e.Submitted(1, job, [MonotaskSpec(id=1, kind=ResourceKind.CPU, input_bytes=1)]), 1.0)
    node.handle(e.Completed(1, job, [Completion(id=1)]), 1.25)
    assert [(use.service_s, use.running) for use in node.load(2.0).jobs] == [(0.25, 0)]
    assert node.load(3.0).jobs == []


def test_a_new_connection_is_told_of_all_jobs_and_what_ended_is_forgotten() -> None:
    node, job = node_with_a_job()
    assert len(node.load(0.0).jobs) == 1
    assert node.load(1.0).jobs == []
    node.decided = 7
    node.link_opens()
    assert [use.job for use in node.load(2.0).jobs] == [job]
    assert node.decided == 0
    node.handle(e.JobEndRequested(1, job), 3.0)
    node.link_opens()
    assert node.load(4.0).jobs == []


def test_the_processor_time_of_its_containers_counts_where_it_is_more_than_slot_time() -> None:
    node, job = node_with_a_job()
    node.handle(e.SessionOpened(2, "u", 1000, "c"), 0.0)
    [started] = [
        each.container
        for each in node.handle(e.LaunchRequested(2, ContainerSpec(argv=("x",))), 0.0)
        if isinstance(each, i.StartContainer)
    ]
    node.handle(e.ContainerStarted(started, 7, {}, 0.0), 0.0)
    node.handle(e.SessionOpened(3, "u", 1000, "c", container=started), 0.0)
    node.handle(e.JobRegistered(3, RegisterJob(name="j", job=job), 0.0), 0.0)
    node.load(0.0)

    def told(at: float, cpu_s: float) -> list[float]:
        use = {started: ContainerUse(cpu_seconds=cpu_s)}
        node.handle(e.Sampled(Snapshot(at, 1.0, containers=use), at), at)
        return [use.service_s for use in node.load(at).jobs]

    assert told(1.0, 1.5) == [1.5]
    assert told(2.0, 1.51) == [], "too little to be told"
    assert told(3.0, 3.0) == [3.0]
    node.handle(e.Submitted(1, job, [MonotaskSpec(id=1, kind=ResourceKind.CPU, input_bytes=1)]), 3.0)
    assert told(5.0, 4.0) == [4.0]
    assert told(20.0, 4.0) == [pytest.approx(17.0)], "by now the slot-time is more"
    node.handle(e.ContainerExited(started, 0, None, 30.0, 0, 0, 21.0), 21.0)
    node.handle(e.Sampled(Snapshot(22.0, 1.0), 22.0), 22.0)
    assert [use.service_s for use in node.load(22.0).jobs] == [30.0], "what has ended counts"
