"""What a node's heartbeats say of idle cores: one that a placed task is about to take is none (Ursa §4.2.2)."""

from __future__ import annotations

from agent.core import Node
from agent.core import events as e
from penstock.model import ContainerSpec, KindAmounts, MonotaskSpec, ResourceKind, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Complete, Completion, Submit
from penstock.wire.master_api import Assign
from tests.fakes.node_bed import node_with_a_job

CPU, DISK = ResourceKind.CPU, ResourceKind.DISK


def placed(node: Node, job: str, request: TaskRequest) -> None:
    node.handle(e.Decided(1, [Assign(job=job, stage="s", user="u", origin="a", priority=0.0, request=request)]), 0.0)


def submitted(node: Node, job: str, number: int, kind: ResourceKind, size: int) -> None:
    node.handle(
        e.Asked(
            m.SUBMIT, 1, Submit(job=job, monotasks=[MonotaskSpec(id=number, kind=kind, input_bytes=size, task="t")])
        ),
        0.0,
    )


def test_a_placed_task_takes_its_core_until_something_of_it_is_queued() -> None:
    node, job = node_with_a_job()
    placed(node, job, TaskRequest(task="t", usage=KindAmounts(cpu=50.0, disk=10.0)))
    load = node.load(0.0)
    assert (load.idle.cpu, load.idle.disk) == (3.0, 1.0), "its framework has only now heard where it is"
    assert load.pending == KindAmounts(cpu=50.0, disk=10.0)
    submitted(node, job, 1, DISK, 10)
    assert node.load(0.0).idle == KindAmounts(cpu=4.0, disk=0.0, network=2.0), "it reads: its core is idle"
    node.handle(e.Asked(m.COMPLETE, 1, Complete(job=job, monotasks=[Completion(id=1)])), 1.0)
    submitted(node, job, 2, CPU, 50)
    assert node.load(1.0).idle.cpu == 3.0, "taken once, and not a second time for its being placed lately"


def test_who_does_not_compute_takes_no_core_and_there_are_never_fewer_than_none() -> None:
    node, job = node_with_a_job()
    placed(node, job, TaskRequest(task="t", usage=KindAmounts(disk=10.0)))
    assert node.load(0.0).idle.cpu == 4.0
    for number in range(6):
        placed(node, job, TaskRequest(task=f"c{number}", usage=KindAmounts(cpu=50.0)))
    assert node.load(0.0).idle.cpu == 0.0


def test_a_command_is_in_its_queue_at_once() -> None:
    node, job = node_with_a_job()
    command = ContainerSpec(argv=("true",), cpu_cores=1.0)
    placed(node, job, TaskRequest(task="c", usage=KindAmounts(cpu=50.0), command=command))
    assert node.load(0.0).idle.cpu == 3.0
