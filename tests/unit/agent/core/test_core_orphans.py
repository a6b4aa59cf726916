"""Containers whose launcher died are held, stopped and accounted for as before; only their exit status is unknown."""

from __future__ import annotations

import dataclasses

import pytest

from agent.core import Node
from agent.core import events as e
from agent.core import instructions as i
from agent.core.records import ContainerRecord, ContainerState
from agent.core.settings import NodeSettings
from penstock.model import Capacity, ContainerSpec, Ended, EndedBy
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import ContainerRef, Launch

SETTINGS = NodeSettings(node="n", instance="x", capacity=Capacity(cores=4, memory_bytes=1 << 30))
SPEC = ContainerSpec(argv=("x",), cpu_cores=1.0, memory_bytes=1 << 20, detach=True)
REASON = "the launcher that could see its exit status died"


@pytest.fixture
def node() -> Node:
    made = Node(SETTINGS)
    made.handle(e.SessionOpened(1, "u", 1000, "test"), 0.0)
    return made


def started(node: Node, *, adopted: bool = False) -> str:
    asked = e.AdoptRequested(1, SPEC, 7, False) if adopted else e.Asked(m.LAUNCH, 1, Launch(container=SPEC))
    (container,) = [one.result for one in node.handle(asked, 0.0) if isinstance(one, i.Reply)]
    assert isinstance(container, str)
    node.handle(e.ContainerStarted(container, 7, {}, 1e9), 0.0)
    return container


def lost(node: Node) -> list[i.Instruction]:
    return node.handle(e.LauncherLost(1e9), 1.0)


def ended(node: Node, container: str) -> Ended:
    node.handle(e.ContainerExited(container, None, None, 2.5, 4096, 0, 1e9 + 3), 4.0)
    found = node.containers.ended.by_id[container].ended
    assert found is not None
    return found


def test_they_are_watched_journaled_and_keep_what_they_were_promised(node: Node) -> None:
    container = started(node)
    done = lost(node)
    assert i.WatchOrphan(container) in done
    (record,) = [one.value for one in done if isinstance(one, i.Record)]
    assert isinstance(record, ContainerRecord) and record.orphaned
    assert node.containers.live[container].state is ContainerState.RUNNING
    assert (node.ledger().promised_cores, node.load(1.0).promised_cores) == (1.0, 1.0)
    assert lost(node) == [], "the next launcher dies, too: it was none of its containers"


@pytest.mark.parametrize("adopted", [False, True])
def test_the_reason_says_why_the_status_is_unknown(node: Node, adopted: bool) -> None:
    container = started(node, adopted=adopted)
    lost(node)
    end = ended(node, container)
    assert (end.by, end.exit_status, end.reason) == (EndedBy.LOST, None, REASON)
    assert (end.cpu_seconds, end.memory_peak_bytes, end.wall_seconds) == (2.5, 4096, 3.0)
    assert node.ledger().promised_cores == 0


def test_an_adopted_process_that_ends_under_a_living_launcher_is_not_lost(node: Node) -> None:
    assert ended(node, started(node, adopted=True)).by is EndedBy.EXIT


def test_the_end_may_be_told_before_the_start(node: Node) -> None:
    """A launcher that dies has told both, and they are read at once."""
    (container,) = [
        one.result for one in node.handle(e.Asked(m.LAUNCH, 1, Launch(container=SPEC)), 0.0) if isinstance(one, i.Reply)
    ]
    assert isinstance(container, str)
    node.handle(e.ContainerExited(container, 3, None, 0.1, 0, 0, 1e9), 1.0)
    assert node.handle(e.ContainerStarted(container, 7, {}, 1e9), 1.0) == []
    found = node.containers.ended.by_id[container].ended
    assert found is not None and found.exit_status == 3 and not node.containers.live


def test_they_can_be_killed(node: Node) -> None:
    container = started(node)
    lost(node)
    assert [
        one
        for one in node.handle(e.Asked(m.KILL, 1, ContainerRef(container=container)), 2.0)
        if isinstance(one, i.KillContainer)
    ]
    assert ended(node, container).by is EndedBy.CANCELLED


def test_what_is_being_started_is_answered_for_by_its_start(node: Node) -> None:
    (container,) = [
        one.result for one in node.handle(e.Asked(m.LAUNCH, 1, Launch(container=SPEC)), 0.0) if isinstance(one, i.Reply)
    ]
    assert lost(node) == []
    done = node.handle(e.ContainerStarted(str(container), 7, {}, 1e9, orphaned=True), 1.0)
    assert i.WatchOrphan(str(container)) in done
    assert node.containers.live[str(container)].orphaned


def test_the_next_agent_watches_those_that_run_and_ends_the_others(node: Node) -> None:
    runs, gone = started(node), started(node)
    lost(node)
    fresh = Node(dataclasses.replace(SETTINGS, instance="y"))
    records = [*node.containers.live.values()]
    done = fresh.handle(e.Recovered([], [], records, {runs: 7}, frozenset(), 1e9 + 3, orphans=frozenset({runs})), 0.0)
    assert i.WatchOrphan(runs) in done
    assert any(isinstance(one, i.Confine) and one.container == runs for one in done), "its limits are told again"
    over = fresh.containers.ended.by_id[gone].ended
    assert over is not None and (over.by, over.reason) == (EndedBy.LOST, REASON)
