"""A task ended while its framework was away: whatever dies, the framework is told, and nothing runs again."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from agent.core import Node, tasks
from agent.core import events as e
from agent.core import instructions as i
from agent.core.events import EndUnread
from agent.core.records import JobRecord, TaskEnd
from agent.core.settings import NodeSettings
from penstock.model import Capacity, ContainerSpec, Ended, EndedBy, KindAmounts, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire import master_api as api
from penstock.wire.agent_api import JobRef, Place, RegisterJob, TaskEnded, TaskPlaced

SETTINGS = NodeSettings(node="n", instance="x", capacity=Capacity(cores=4, memory_bytes=1 << 30), has_master=True)
REQUEST = TaskRequest(task="t", usage=KindAmounts(cpu=1.0), command=ContainerSpec(argv=("x",)))
EXIT = Ended(by=EndedBy.EXIT, exit_status=3)


class Bed:
    """Agents of one host, one after the other, of which the journal alone outlives each."""

    def __init__(self) -> None:
        self.journal: dict[tuple[str, str], Any] = {}
        self.agents = 0
        self.node = self._fresh()

    def _fresh(self) -> Node:
        self.agents += 1
        return Node(dataclasses.replace(SETTINGS, instance=f"x{self.agents}"))

    def send(self, event: e.Event) -> list[i.Instruction]:
        done = self.node.handle(event, 0.0)
        for one in done:
            if isinstance(one, i.Record) and one.value is None:
                self.journal.pop((one.room, one.key), None)
            elif isinstance(one, i.Record):
                self.journal[one.room, one.key] = msgspec.msgpack.encode(one.value)
        return done

    def dies(self) -> None:
        self.node = self._fresh()
        self.send(
            e.Recovered(
                jobs=self.of("jobs", JobRecord), tasks=[], containers=[], running={}, exits_to_come=frozenset(), at=1e9,
                ends=self.of(tasks.ENDS, TaskEnd),
            )
        )  # fmt: skip

    def of(self, room: str, kind: Any) -> list[Any]:
        return [msgspec.msgpack.decode(value, type=kind) for (where, _), value in self.journal.items() if where == room]

    def joins(self, job: str = "") -> str:
        """A framework registers a job, or comes back to it."""
        self.send(e.SessionOpened(1, "u", 1000, "test"))
        self.send(e.JobRegistered(1, RegisterJob(name="j", job=job), 0.0))
        return next(iter(self.node.jobs))

    def asks(self, job: str) -> list[i.Instruction]:
        return self.send(e.Asked(m.PLACE, 1, Place(job=job, stage="s", tasks=[REQUEST], opportunistic=False)))

    def master_tells(self, job: str) -> list[i.Instruction]:
        return self.send(e.Decided(1, [api.TellEnded(job=job, task="t", node="other", ended=EXIT)]))


@pytest.fixture
def bed() -> Bed:
    return Bed()


def told(done: list[i.Instruction]) -> list[object]:
    return [one.params for one in done if isinstance(one, i.Notify)]


def to_master(done: list[i.Instruction]) -> list[str]:
    return [one.method for one in done if isinstance(one, i.TellMaster)]


@pytest.mark.parametrize("deaths", [0, 1, 2])
def test_the_framework_is_told_when_it_asks_again(bed: Bed, deaths: int) -> None:
    job = bed.joins()
    bed.asks(job)
    bed.dies()
    assert told(bed.master_tells(job)) == []
    for _ in range(deaths):
        bed.dies()
    bed.joins(job)
    again = bed.asks(job)
    assert told(again) == [
        TaskPlaced(job=job, task="t", node="other"),
        TaskEnded(job=job, task="t", node="other", ended=EXIT),
    ]
    assert to_master(again) == [], "it would be run again"
    assert told(bed.master_tells(job)) == [], "it ends once"


def test_a_framework_that_is_there_is_told_at_once(bed: Bed) -> None:
    job = bed.joins()
    bed.asks(job)
    assert told(bed.master_tells(job)) == [TaskEnded(job=job, task="t", node="other", ended=EXIT)]
    assert bed.of(tasks.ENDS, TaskEnd) == []


def test_one_that_is_there_and_does_not_read_is_told_by_the_next_agent(bed: Bed) -> None:
    job = bed.joins()
    bed.asks(job)
    bed.master_tells(job)
    bed.send(EndUnread(job, "t"))
    assert bed.send(EndUnread(job, "t")) == [], "it is kept once"
    bed.dies()
    bed.joins(job)
    again = bed.asks(job)
    assert TaskEnded(job=job, task="t", node="other", ended=EXIT) in told(again)
    assert to_master(again) == [], "it would be run again"
    bed.send(e.Asked(m.END_JOB, 1, JobRef(job=job)))
    assert bed.journal == {}
    assert bed.send(EndUnread(job, "t")) == [], "nothing is left of it"


def test_it_is_forgotten_with_the_job(bed: Bed) -> None:
    job = bed.joins()
    bed.asks(job)
    bed.dies()
    bed.master_tells(job)
    bed.dies()
    bed.joins(job)
    assert bed.of(tasks.ENDS, TaskEnd)
    bed.send(e.Asked(m.END_JOB, 1, JobRef(job=job)))
    assert bed.journal == {}


def test_an_agent_that_died_while_it_forgot_the_job_leaves_nothing_of_it(bed: Bed) -> None:
    job = bed.joins()
    bed.asks(job)
    bed.dies()
    bed.master_tells(job)
    del bed.journal["jobs", job]
    bed.dies()
    assert bed.journal == {}
