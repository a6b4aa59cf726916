"""A placed command that the agent did not get to start is started by the next agent; whatever may have begun is not."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from agent.core import Node
from agent.core import events as e
from agent.core import instructions as i
from agent.core.records import ContainerRecord, HeldTask
from agent.core.settings import NodeSettings
from penstock.model import Capacity, ContainerSpec, Ended, EndedBy, Executor, KindAmounts, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire import master_api as api
from penstock.wire.agent_api import Launch

JOB = "other-1"
SETTINGS = NodeSettings(node="n", instance="x", capacity=Capacity(cores=4, memory_bytes=1 << 30), has_master=True)


class Bed:
    """A node whose journal is kept, so that another node can take it back."""

    def __init__(self, instance: str) -> None:
        self.node = Node(dataclasses.replace(SETTINGS, instance=instance))
        self.journal: dict[tuple[str, str], object] = {}
        self.started: list[str] = []
        self.removed: list[str] = []
        self.told: list[Ended] = []

    def send(self, event: e.Event) -> None:
        for one in self.node.handle(event, 0.0):
            match one:
                case i.StartContainer(container=container):
                    self.started.append(container)
                case i.RemoveContainer(container):
                    self.removed.append(container)
                case i.Record(room, key, None):
                    self.journal.pop((room, key), None)
                case i.Record(room, key, value):
                    self.journal[room, key] = msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type(value))
                case i.TellMaster("command_ended", params):
                    assert isinstance(params, api.CommandEnded)
                    self.told.append(params.ended)

    def assign(self, *, opportunistic: bool = False, executor: Executor | None = None) -> str:
        """Place a command here; the container that it is started in."""
        spec = ContainerSpec(argv=("x",), memory_bytes=1 << 20)
        request = TaskRequest(
            task="t", usage=KindAmounts(cpu=1.0), memory_bytes=1 << 20, command=spec, executor=executor
        )
        decision = api.Assign(
            job=JOB, stage="s", user="u", origin="other", priority=0.0, request=request, opportunistic=opportunistic
        )
        self.send(e.Decided(1, [decision]))
        (container,) = self.started
        return container

    def of(self, room: str) -> list[object]:
        return [value for (where, _), value in self.journal.items() if where == room]

    def restarted(self, *never_began: str, running: tuple[str, ...] = ()) -> Bed:
        """The agent dies; what its successor makes of the journal."""
        fresh = Bed("y")
        fresh.journal = dict(self.journal)
        fresh.send(
            e.Recovered(
                jobs=self.of("jobs"),  # type: ignore[arg-type]
                tasks=self.of("tasks"),  # type: ignore[arg-type]
                containers=self.of("containers"),  # type: ignore[arg-type]
                running=dict.fromkeys(running, 7),
                exits_to_come=frozenset(),
                at=1e9,
                never_began=frozenset(never_began),
            )
        )
        return fresh


@pytest.fixture
def bed() -> Bed:
    return Bed("x")


@pytest.mark.parametrize(
    ("opportunistic", "executor"), [(False, None), (True, None), (False, Executor(application="a"))]
)
def test_it_is_started_again(bed: Bed, opportunistic: bool, executor: Executor | None) -> None:
    container = bed.assign(opportunistic=opportunistic, executor=executor)
    fresh = bed.restarted(container)
    if opportunistic:
        fresh.send(e.Reconfigured(fresh.node.settings, 1.0))  # slack is looked for at the next occasion
    (again,) = fresh.started
    assert again != container and not fresh.told
    assert fresh.removed == [container], "its cgroup may be there"
    (record,) = fresh.of("containers")
    assert isinstance(record, ContainerRecord) and record.container == again
    (held,) = fresh.of("tasks")
    assert isinstance(held, HeldTask) and held.container == again
    fresh.send(e.ContainerStarted(again, 7, {}, 1e9))
    fresh.send(e.ContainerExited(again, 0, None, 0.0, 0, 0, 1e9))
    assert [ended.by for ended in fresh.told] == [EndedBy.EXIT]
    assert fresh.node.queues.idle().cpu == 4


def test_what_may_have_begun_is_not(bed: Bed) -> None:
    container = bed.assign()
    fresh = bed.restarted()
    assert not fresh.started and fresh.removed == [container]
    assert [ended.by for ended in fresh.told] == [EndedBy.LOST]


def test_what_runs_goes_on(bed: Bed) -> None:
    container = bed.assign()
    fresh = bed.restarted(running=(container,))
    assert not fresh.started and not fresh.removed and not fresh.told


def test_what_was_being_stopped_ends_as_that(bed: Bed) -> None:
    container = bed.assign()
    bed.send(e.Decided(2, [api.Withdraw(job=JOB, task="t", why="test")]))
    fresh = bed.restarted(container)
    assert not fresh.started
    assert [ended.by for ended in fresh.told] == [EndedBy.CANCELLED]


def test_a_launch_whose_client_was_not_answered_is_not_repeated(bed: Bed) -> None:
    """The client may have asked again meanwhile, and it never learnt this container's id."""
    bed.send(e.SessionOpened(1, "u", 1000, "test"))
    bed.send(e.Asked(m.LAUNCH, 1, Launch(container=ContainerSpec(argv=("x",), detach=True))))
    (container,) = bed.started
    fresh = bed.restarted(container)
    assert not fresh.started and not fresh.node.containers.live
    ended = fresh.node.containers.ended.by_id[container].ended
    assert ended is not None and ended.by is EndedBy.FAILED
    assert ended.reason == "the agent was restarted before the command was started: it never ran"
