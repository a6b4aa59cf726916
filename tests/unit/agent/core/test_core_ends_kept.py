"""How a command ended is in the journal until the master has heard of it."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from agent.core import Node, tasks
from agent.core import events as e
from agent.core import instructions as i
from agent.core.records import HeldTask
from agent.core.settings import NodeSettings
from master.core import Cluster, MasterSettings
from master.core import events as m
from penstock.model import Capacity, ContainerSpec, Ended, EndedBy, KindAmounts, TaskRequest
from penstock.wire import master_api as api

JOB = "other-1"
SETTINGS = NodeSettings(node="n", instance="x", capacity=Capacity(cores=4, memory_bytes=1 << 30), has_master=True)
KEY = tasks.journal_key(JOB, "t")


@pytest.fixture
def node() -> Node:
    return Node(SETTINGS)


def assign(node: Node, number: int = 1) -> str:
    """Place it there; the container that it runs in."""
    spec = ContainerSpec(argv=("x",), memory_bytes=1 << 20)
    request = TaskRequest(task="t", usage=KindAmounts(cpu=1.0), memory_bytes=1 << 20, command=spec)
    decision = api.Assign(job=JOB, stage="s", user="u", origin="other", priority=0.0, request=request)
    (started,) = [
        one.container for one in node.handle(e.Decided(number, [decision]), 0.0) if isinstance(one, i.StartContainer)
    ]
    node.handle(e.ContainerStarted(started, 7, {}, 1e9), 0.0)
    return started


def exits(node: Node, container: str) -> list[i.Instruction]:
    return node.handle(e.ContainerExited(container, 3, None, 0.0, 0, 0, 1e9), 1.0)


def journaled(done: list[i.Instruction]) -> list[tuple[str, object]]:
    return [(one.room, one.value) for one in done if isinstance(one, i.Record)]


def told(done: list[i.Instruction]) -> list[Ended]:
    return [
        one.params.ended for one in done if isinstance(one, i.TellMaster) and isinstance(one.params, api.CommandEnded)
    ]


def taken_back(held: HeldTask) -> tuple[Node, list[i.Instruction]]:
    """By another agent, from the journal."""
    fresh = Node(dataclasses.replace(SETTINGS, instance="y"))
    record = msgspec.msgpack.decode(msgspec.msgpack.encode(held), type=HeldTask)
    recovered = e.Recovered(jobs=[], tasks=[record], containers=[], running={}, exits_to_come=frozenset(), at=1e9)
    return fresh, fresh.handle(recovered, 0.0)


def test_until_then_it_is_registered_as_held(node: Node) -> None:
    """Or the master would look for another place for it, before it reads what comes right behind."""
    exits(node, assign(node))
    assert [(placed.task, placed.command) for placed in node.held.report()] == [("t", True)]
    node.handle(e.EndAcknowledged(JOB, "t"), 1.0)
    assert node.held.report() == []


def test_what_has_come_back_meanwhile_stays_written_down(node: Node) -> None:
    """The master had lost the connection, and had given it to this node again before it heard of the end."""
    exits(node, assign(node))
    container = assign(node, 2)
    assert node.handle(e.EndAcknowledged(JOB, "t"), 2.0) == []
    assert node.held.by_key[JOB, "t"].container == container
    assert len(node.held.report()) == 1
    assert node.held.by_key[JOB, "t"].ended is None


def test_what_was_stopped_to_be_done_elsewhere_is_told_as_that(node: Node) -> None:
    """A node that is drained and restarted while the master is away."""
    container = assign(node)
    node.containers.stop(container, EndedBy.PREEMPTED, "drained")
    done = exits(node, container)
    (held,) = [value for _, value in journaled(done) if isinstance(value, HeldTask)]
    _, again = taken_back(held)
    assert [ended.by for ended in told(again)] == [EndedBy.PREEMPTED]


@pytest.mark.parametrize("opportunistic", [False, True])
def test_memory_that_others_hold_is_others_though_the_end_of_a_command_has_not_been_heard(opportunistic: bool) -> None:
    """A registration names the command as if it ran: so its load counts what the command was promised."""
    node = Node(SETTINGS)
    node.handle(e.SessionOpened(1, "u", 1000, "c"), 0.0)
    node.handle(e.LaunchRequested(1, ContainerSpec(argv=("x",), memory_bytes=3 << 20)), 0.0)
    request = TaskRequest(
        task="t", usage=KindAmounts(cpu=1.0), memory_bytes=1 << 20, command=ContainerSpec(argv=("x",))
    )
    decision = api.Assign(
        job=JOB, stage="s", user="u", origin="other", priority=0.0, request=request, opportunistic=opportunistic
    )
    [container] = [
        one.container for one in node.handle(e.Decided(1, [decision]), 0.0) if isinstance(one, i.StartContainer)
    ]
    node.handle(e.ContainerStarted(container, 7, {}, 1e9), 0.0)
    [ended] = [one.params for one in exits(node, container) if isinstance(one, i.TellMaster)]
    node.link_opens()
    cluster = Cluster(MasterSettings(gather_s=0.0))
    registration = api.Register(
        protocol=api.PROTOCOL, node="n", version="0", capacity=SETTINGS.capacity,
        load=node.held.registering(node.load(2.0)), placed=node.held.report(),
    )  # fmt: skip
    cluster.handle(m.Said("n", registration), 2.0)
    assert cluster.nodes["n"].external_memory_bytes == 3 << 20
    assert isinstance(ended, api.CommandEnded)
    cluster.handle(m.Said("n", ended), 2.0)
    assert cluster.nodes["n"].external_memory_bytes == 3 << 20
    cluster.handle(m.Said("n", node.heartbeat(2.0)), 2.0)
    assert cluster.nodes["n"].external_memory_bytes == 3 << 20
