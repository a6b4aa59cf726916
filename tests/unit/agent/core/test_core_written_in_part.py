"""An agent dies between any two steps of a placed command: the command runs once, and its one end is told."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from agent.core import Node
from agent.core import events as e
from agent.core import instructions as i
from agent.core.records import ContainerState
from agent.core.settings import NodeSettings
from penstock.model import Capacity, ContainerSpec, Ended, Executor, KindAmounts, TaskRequest
from penstock.wire import master_api as api

JOB, STATUS = "other-1", 3
_NOT_BEGUN = {ContainerState.STARTING, ContainerState.STOPPING}
SETTINGS = NodeSettings(node="n", instance="x", capacity=Capacity(cores=4, memory_bytes=1 << 30), has_master=True)


@dataclass
class Host:
    """What outlives the agent: the journal and the launcher. ``starts`` and ``told`` are for the test."""

    journal: dict[tuple[str, str], object] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    exited: set[str] = field(default_factory=set)
    starts: int = 0
    told: list[Ended] = field(default_factory=list)

    def copy(self) -> Host:
        return Host(dict(self.journal), set(self.running), set(self.exited), self.starts, list(self.told))

    def of(self, room: str) -> list[Any]:
        return [_copied(value) for (where, _), value in self.journal.items() if where == room]


def _copied(record: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=type(record))


class Bed:
    """A node on a host; ``deaths`` are the states of the host in which its agent may die."""

    def __init__(self, host: Host, instance: str) -> None:
        self.node = Node(dataclasses.replace(SETTINGS, instance=instance))
        self.host = host
        self.deaths: list[Host] = []
        self.asked: list[str] = []

    def send(self, event: e.Event) -> None:
        for one in self.node.handle(event, 0.0):
            match one:
                case i.StartContainer(container=container):
                    self.asked.append(container)
                case i.Record(room, key, None):
                    self.host.journal.pop((room, key), None)
                case i.Record(room, key, value):
                    self.host.journal[room, key] = _copied(value)
                case i.TellMaster("command_ended", params):
                    assert isinstance(params, api.CommandEnded)
                    self.host.told.append(params.ended)
                case i.RemoveContainer(container):
                    self.deaths.append(self.host.copy())  # the launcher has not been told yet
                    self.host.exited.discard(container)
            self.deaths.append(self.host.copy())

    def decide(self, number: int, decision: api.Decision) -> None:
        self.send(e.Decided(number, [decision]))

    def start(self) -> None:
        """Start what the launcher was asked for."""
        asked, self.asked = self.asked, []
        for container in asked:
            self.host.starts += 1
            self.host.running.add(container)
            self.deaths.append(self.host.copy())
            self.send(e.ContainerStarted(container, 7, {}, 1e9))

    def exit(self) -> None:
        """End all that runs, and tell of each end that the launcher keeps."""
        self.host.exited |= self.host.running
        self.host.running.clear()
        self.deaths.append(self.host.copy())
        for container in sorted(self.host.exited):
            self.send(e.ContainerExited(container, STATUS, None, 0.0, 0, 0, 1e9))

    def restart(self) -> Bed:
        host = self.host
        fresh = Bed(host, "y")
        containers = host.of("containers")
        fresh.send(
            e.Recovered(
                jobs=host.of("jobs"),
                tasks=host.of("tasks"),
                containers=containers,
                running=dict.fromkeys(host.running, 7),
                exits_to_come=frozenset(host.exited),
                at=1e9,
                never_began=frozenset(c.container for c in containers if c.state in _NOT_BEGUN and not c.pid)
                - host.running
                - host.exited,
            )
        )
        return fresh


def life(*, opportunistic: bool, executor: bool, promoted: bool, withdrawn: bool) -> Bed:
    """A command from its placement to its end, of which the master has heard."""
    bed = Bed(Host(), "x")
    spec = ContainerSpec(argv=("x",), memory_bytes=1 << 20)
    of = Executor(application="a") if executor else None
    request = TaskRequest(task="t", usage=KindAmounts(cpu=1.0), memory_bytes=1 << 20, command=spec, executor=of)
    assign = api.Assign(
        job=JOB, stage="s", user="u", origin="other", priority=0.0, request=request, opportunistic=opportunistic
    )
    bed.decide(1, assign)
    bed.start()
    if promoted:
        bed.decide(2, api.Promote(job=JOB, task="t"))
    if withdrawn:
        bed.decide(3, api.Withdraw(job=JOB, task="t", why="test"))
    bed.exit()
    bed.send(e.EndAcknowledged(JOB, "t"))
    return bed


LIVES = [
    {"opportunistic": False, "executor": False, "promoted": False, "withdrawn": False},
    {"opportunistic": False, "executor": False, "promoted": False, "withdrawn": True},
    {"opportunistic": True, "executor": False, "promoted": False, "withdrawn": False},
    {"opportunistic": True, "executor": False, "promoted": True, "withdrawn": False},
    {"opportunistic": False, "executor": True, "promoted": False, "withdrawn": False},
]


@pytest.mark.parametrize(
    "course", LIVES, ids=lambda course: " ".join(key for key, on in course.items() if on) or "regular"
)
def test_it_runs_once_and_its_end_is_told(course: dict[str, bool]) -> None:
    for host in life(**course).deaths:
        _goes_on(host)


def _goes_on(host: Host) -> None:
    placed, told = bool(host.of("tasks")), len(host.told)
    fresh = Bed(host, "x").restart()
    fresh.send(e.Reconfigured(fresh.node.settings, 1.0))  # slack is looked for at the next occasion
    fresh.start()
    fresh.exit()
    assert host.starts == (1 if placed or told else 0)
    assert len(host.told) - told == placed, "until the master has heard of it"
    assert {ended.exit_status for ended in host.told} <= {STATUS}
    assert len({ended.by for ended in host.told}) <= 1
    node = fresh.node
    assert not node.containers.live and not node.held.by_key and not host.exited
    assert node.queues.idle().cpu == SETTINGS.capacity.cores
    kept = [record.ended for record in node.containers.ended.by_id.values()]
    assert len(kept) == host.starts and {ended.exit_status for ended in kept if ended} <= {STATUS}
