"""Containers whose launcher died are held, stopped and accounted for as before; only their exit status is unknown."""

from __future__ import annotations

import pytest

from agent.core import events as e
from agent.core import instructions as i
from agent.core.records import ContainerRecord, ContainerState
from penstock.model import ContainerSpec, Ended, EndedBy
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import ContainerRef, Launch
from tests.fakes.node_bed import NodeBed

SPEC = ContainerSpec(argv=("x",), cpu_cores=1.0, memory_bytes=1 << 20, detach=True)
REASON = "the launcher that could see its exit status died"


@pytest.fixture
def bed() -> NodeBed:
    made = NodeBed(has_master=False)
    made.open()
    return made


def started(bed: NodeBed, *, adopted: bool = False) -> str:
    container = bed.send(
        e.AdoptRequested(1, SPEC, 7, False) if adopted else e.Requested(m.LAUNCH, 1, Launch(container=SPEC))
    )
    bed.begin(container)
    return str(container)


def lost(bed: NodeBed) -> list[i.Instruction]:
    return bed.handle(e.LauncherLost())


def ended(bed: NodeBed, container: str) -> Ended:
    bed.send(e.ContainerExited(container, None, None, 2.5, 4096, 0, 1e9 + 3))
    found = bed.node.containers.ended.by_id[container].ended
    assert found is not None
    return found


def test_they_are_watched_journaled_and_keep_their_promises(bed: NodeBed) -> None:
    container = started(bed)
    done = lost(bed)
    assert i.WatchOrphan(container) in done
    (record,) = [one.value for one in done if isinstance(one, i.Record)]
    assert isinstance(record, ContainerRecord) and record.orphaned
    assert bed.node.containers.live[container].state is ContainerState.RUNNING
    assert (bed.node.ledger().promised_cores, bed.node.load(1.0).promised_cores) == (1.0, 1.0)
    assert lost(bed) == [], "the next launcher dies, too: it was none of its containers"


@pytest.mark.parametrize("adopted", [False, True])
def test_the_reason_has_the_cause_of_the_unknown_status(bed: NodeBed, adopted: bool) -> None:
    container = started(bed, adopted=adopted)
    lost(bed)
    end = ended(bed, container)
    assert (end.by, end.exit_status, end.reason) == (EndedBy.LOST, None, REASON)
    assert (end.cpu_seconds, end.memory_peak_bytes, end.wall_seconds) == (2.5, 4096, 3.0)
    assert bed.node.ledger().promised_cores == 0


def test_an_adopted_process_that_ends_under_a_living_launcher_is_not_lost(bed: NodeBed) -> None:
    assert ended(bed, started(bed, adopted=True)).by is EndedBy.EXIT


def test_the_end_may_be_reported_before_the_start(bed: NodeBed) -> None:
    """A launcher that dies has reported both, and they are read at once."""
    container = bed.send(e.Requested(m.LAUNCH, 1, Launch(container=SPEC)))
    bed.handle(e.ContainerExited(container, 3, None, 0.1, 0, 0, 1e9))
    assert bed.handle(e.ContainerStarted(container, 7, {}, 1e9)) == []
    found = bed.node.containers.ended.by_id[container].ended
    assert found is not None and found.exit_status == 3 and not bed.node.containers.live


def test_they_can_be_killed(bed: NodeBed) -> None:
    container = started(bed)
    lost(bed)
    assert [
        one
        for one in bed.handle(e.Requested(m.KILL, 1, ContainerRef(container=container)))
        if isinstance(one, i.KillContainer)
    ]
    assert ended(bed, container).by is EndedBy.CANCELLED


def test_a_container_that_is_being_started_is_answered_for_by_its_start(bed: NodeBed) -> None:
    container = bed.send(e.Requested(m.LAUNCH, 1, Launch(container=SPEC)))
    assert lost(bed) == []
    done = bed.handle(e.ContainerStarted(container, 7, {}, 1e9, orphaned=True))
    assert i.WatchOrphan(container) in done
    assert bed.node.containers.live[container].orphaned


def test_the_next_agent_watches_those_that_run_and_ends_the_others(bed: NodeBed) -> None:
    runs, gone = started(bed), started(bed)
    lost(bed)
    bed.restart(runs, after_s=3.0, orphans=frozenset({runs}))
    assert bed.given(i.WatchOrphan) == [i.WatchOrphan(runs)]
    assert [one.container for one in bed.given(i.Confine)] == [runs], "its limits are told again"
    over = bed.node.containers.ended.by_id[gone].ended
    assert over is not None and (over.by, over.reason) == (EndedBy.LOST, REASON)
