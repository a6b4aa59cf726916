"""A client that only watches a container leaves it as it is; the end of the one that started it ends it."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

import pytest

from agent.core import events as e
from agent.core import instructions as i
from agent.core.records import ContainerState
from penstock.model import KindAmounts, Profile, ResourceKind
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Attach, TaskRefs
from penstock.wire.errors import RpcError
from penstock.wire.master_api import CommandEnded, TellPlaced
from tests.fakes.node_bed import NodeBed


@pytest.fixture
def bed() -> NodeBed:
    made = NodeBed()
    for session in (1, 2):
        made.open(session)
    return made


def attach(bed: NodeBed, session: int, container: str, *, own: bool = True) -> None:
    bed.send(e.Requested(m.ATTACH, session, Attach(container=container, own=own)))


def killed(bed: NodeBed) -> list[str]:
    return [kill.container for kill in bed.given(i.KillContainer)]


@pytest.mark.parametrize("own", [True, False])
def test_a_task_belongs_to_its_job_with_any_watchers(bed: NodeBed, own: bool) -> None:
    bed.command("t")
    container = bed.container("t")
    bed.begin(container)
    attach(bed, 2, container, own=own)
    bed.send(e.SessionClosed(2))
    assert killed(bed) == [] and bed.record("t").state is ContainerState.RUNNING


@pytest.mark.parametrize("own", [True, False])
def test_a_detached_container_stays_detached(bed: NodeBed, own: bool) -> None:
    container = bed.launch(1, detach=True)
    bed.begin(container)
    bed.send(e.SessionClosed(1))
    attach(bed, 2, container, own=own)
    bed.send(e.SessionClosed(2))
    assert killed(bed) == []


def test_after_a_restart_a_container_ends_with_the_client_that_comes_back_for_it(bed: NodeBed) -> None:
    container = bed.launch(1)
    bed.begin(container)
    bed.restart(container)
    for session in (1, 2):
        bed.open(session)
    attach(bed, 2, container, own=False)  # a client reads its output
    attach(bed, 1, container)
    bed.send(e.SessionClosed(2))
    assert killed(bed) == []
    bed.send(e.SessionClosed(1))
    assert killed(bed) == [container]


def test_a_framework_cannot_call_a_command_done(bed: NodeBed) -> None:
    """Otherwise its slot would be granted to a command that is not there any more."""
    job = bed.register(2)
    reads: dict[str, Any] = {"command_kind": ResourceKind.DISK, "usage": KindAmounts(disk=1e9)}
    bed.command("first", **reads)
    bed.begin(bed.container("first"))
    bed.command("second", job=job, **reads)
    assert bed.container("second", job) == "", "it waits for the slot"
    with pytest.raises(RpcError, match="'second' is a command") as refused:
        bed.send(e.Requested(m.TASKS_DONE, 2, TaskRefs(job=job, tasks=["second"])))
    assert refused.value.body.field == "tasks[0]"
    bed.exit(bed.container("first"))
    assert [ended.task for ended in bed.to_master(CommandEnded)] == ["first"]
    bed.begin(bed.container("second", job))


def test_nor_after_a_restart_of_the_agent_when_the_master_has_named_it_first(bed: NodeBed) -> None:
    job = bed.register(2)
    bed.command("t", job=job, origin="n")
    bed.begin(container := bed.container("t", job))
    bed.restart(container)
    bed.open(2)
    bed.register(2, job=job)
    bed.decide(TellPlaced(job=job, task="t", node="n"))
    with pytest.raises(RpcError, match="'t' is a command"):
        bed.send(e.Requested(m.TASKS_DONE, 2, TaskRefs(job=job, tasks=["t"])))


def test_a_sign_of_life_is_not_passed_on(bed: NodeBed) -> None:
    job = bed.register(2)
    bed.done.clear()
    bed.send(e.Requested(m.TASKS_DONE, 2, TaskRefs(job=job, tasks=[])))
    assert not bed.given(i.SendToMaster)


def closely(bed: NodeBed) -> AbstractSet[str]:
    return bed.node.containers.watched_closely(slack_awaited=bool(bed.node.held.waiting))


def test_a_container_is_watched_closely_if_decisions_depend_on_its_stalls() -> None:
    bed = NodeBed()
    bed.open()
    bed.launch(1)
    assert closely(bed) == set()
    promised = bed.launch(1, cpu_cores=1.0)
    followed = bed.launch(1)
    bed.begin(followed)
    bed.send(e.FollowRequested(1, followed, Profile(cpu_cores=(1.0, 2.0), slot_s=60.0), bed.wall_s))
    assert closely(bed) == {promised, followed}


def test_all_are_watched_closely_while_work_runs_on_slack_or_waits_for_it() -> None:
    bed = NodeBed(t_alloc=0.7)
    bed.open()
    regular = bed.launch(1)
    slack = bed.launch(1, opportunistic=True)
    assert closely(bed) == {regular, slack}
    bed.begin(slack)
    bed.exit(slack)
    assert closely(bed) == set()
    assert bed.node.containers.watched_closely(slack_awaited=True) == {regular}
