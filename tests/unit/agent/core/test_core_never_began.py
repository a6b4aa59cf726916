"""A placed command that the agent did not get to start is started by the next agent; one that may have begun is not."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core import events as e
from agent.core import instructions as i
from agent.core.records import ContainerRecord, HeldTask
from penstock.model import Ended, EndedBy, Executor
from penstock.wire import agent_methods as m
from penstock.wire import master_api as api
from penstock.wire.agent_api import EndJob
from tests.fakes.node_bed import NodeBed


class Bed(NodeBed):
    """A node whose journal is kept, so that another node can restore it."""

    @property
    def started(self) -> list[str]:
        return [one.container for one in self.given(i.StartContainer)]

    @property
    def removed(self) -> list[str]:
        return [one.container for one in self.given(i.RemoveContainer)]

    @property
    def told(self) -> list[Ended]:
        return [one.ended for one in self.to_master(api.CommandEnded)]

    def assign(self, **how: Any) -> str:
        """Place a command here; return the container that it is started in."""
        self.command("t", spec={"memory_bytes": 1 << 20}, memory_bytes=1 << 20, **how)
        (container,) = self.started
        return container

    def restarted(self, *never_began: str, running: tuple[str, ...] = ()) -> Bed:
        """Let the agent die; return its successor's state from the journal."""
        return self.restart(*running, never_began=frozenset(never_began))


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
    fresh.begin(again)
    fresh.exit(again)
    assert [ended.by for ended in fresh.told] == [EndedBy.EXIT]
    assert fresh.node.queues.idle().cpu == 4


def test_a_task_that_may_have_begun_is_not_reported_so(bed: Bed) -> None:
    container = bed.assign()
    fresh = bed.restarted()
    assert not fresh.started and fresh.removed == [container]
    assert [ended.by for ended in fresh.told] == [EndedBy.LOST]


def test_a_task_that_was_being_stopped_ends_as_stopped(bed: Bed) -> None:
    container = bed.assign()
    bed.decide(api.Withdraw(job=Bed.JOB, task="t", why="test"))
    fresh = bed.restarted(container)
    assert not fresh.started
    assert [ended.by for ended in fresh.told] == [EndedBy.CANCELLED]


def test_a_task_that_was_being_stopped_as_its_job_ended_holds_no_slot_and_ends(bed: Bed) -> None:
    bed.open()
    job = bed.register()
    container = bed.assign(job=job)
    bed.begin(container)
    bed.send(e.Requested(m.END_JOB, 1, EndJob(job=job)))
    fresh = bed.restarted(running=(container,))
    assert not fresh.started and list(fresh.node.containers.live) == [container]
    fresh.exit(container)
    assert not fresh.node.containers.live and fresh.node.queues.idle().cpu == 4


def test_a_launch_whose_client_was_not_answered_is_not_repeated(bed: Bed) -> None:
    """The client may have asked again meanwhile, and it never learnt this container's id."""
    bed.open()
    container = bed.launch(detach=True)
    fresh = bed.restarted(container)
    assert not fresh.started and not fresh.node.containers.live
    ended = fresh.node.containers.ended.by_id[container].ended
    assert ended is not None and ended.by is EndedBy.FAILED
    assert ended.reason == "the agent was restarted before the command was started: it never ran"


def test_a_placed_command_is_recorded_once_whether_it_starts_or_waits(bed: Bed) -> None:
    tasks = [f"t{number}" for number in range(5)]  # one more than there are slots
    for task in tasks:
        bed.command(task)
    assert len(bed.started) == 4 and not bed.container("t4")
    assert [record.key for record in bed.given(i.Record) if record.room == "tasks"] == [f"other-1/{t}" for t in tasks]
