"""An agent that restarts goes on with the executors of its node: in their slots, and with what was recorded."""

from __future__ import annotations

import pytest

from agent.core import instructions as i
from agent.core.records import ContainerState
from penstock.wire.master_api import Withdraw
from tests.unit.agent.core.executors_bed import JOB, Bed, cores, restarted


@pytest.fixture
def bed() -> Bed:
    return Bed()


def test_after_a_restart_it_goes_on_in_the_slot_that_it_is_in(bed: Bed) -> None:
    bed.assign("a", cores(1, 2, 3, 3))
    bed.now += 0.25
    bed.started("a")
    bed.sample(3)
    fresh = restarted(bed, bed.container("a"), after_s=2.0)
    assert fresh.record("a").kind is None
    assert fresh.node.executors.held(fresh.now).at(fresh.now)[0] == 2.0  # type: ignore[union-attr]
    assert fresh.node.executors.held(fresh.now).at(fresh.now + 0.8)[0] == 3.0  # type: ignore[union-attr]
    assert "cpu" in fresh.assign("b", cores(3.5))[0]
    fresh.exit(fresh.container("a"))
    assert fresh.node.ledger().promised_cores == 0.0
    assert fresh.node.queues.idle().cpu == 4


def test_what_was_recorded_before_a_restart_is_told_with_what_comes_after_it(bed: Bed) -> None:
    bed.assign("a", cores(1, 2, 3, 3))
    bed.started("a")
    before = len(bed.done)
    bed.sample(1, cores=0.5, cpu_seconds=0.5)
    bed.sample(89, cores=0.5)
    written = [one for one in bed.done[before:] if isinstance(one, i.Record) and one.key == bed.container("a")]
    assert 10 < len(written) <= 30, "one a slot of 3 s, or less"
    fresh = restarted(bed, bed.container("a"), after_s=2.0)
    fresh.sample(8, cores=2.0, cpu_seconds=46.5)
    (use,) = fresh.beat().executors
    assert use.first == 0 and not use.ended
    assert [mean[0] for mean in use.mean] == [500] * 31 + [2000, 2000], "3 s of CPU in the 6 s that nobody saw"
    fresh.exit(fresh.container("a"))
    (use,) = fresh.beat().executors
    assert (use.first, use.ended) == (33, True)


def test_half_a_run_is_not_told_as_a_whole_one(bed: Bed) -> None:
    bed.assign("a", cores(1, 2, 3, 3))
    bed.started("a")
    bed.sample(20)
    fresh = restarted(bed, bed.container("a"), after_s=20.0)
    fresh.sample(20)
    assert len(fresh.beat().executors[0].mean) == 20, "by its end enough of it may have been seen"
    fresh.exit(fresh.container("a"))
    (use,) = fresh.beat().executors
    assert use.ended and use.mean == [] and use.first > 20


@pytest.mark.parametrize("reached", ["held", "journaled", "started"])
def test_an_agent_that_ended_while_it_started_one_goes_on_with_it(bed: Bed, reached: str) -> None:
    bed.assign("a", cores(1, 2, 3, 3))
    container = bed.container("a")
    if reached == "held":
        bed.journal = {key: data for key, data in bed.journal.items() if key[0] != "containers"}
    fresh = restarted(bed, *([container] if reached == "started" else []), after_s=5.0)
    if reached == "journaled":
        assert (JOB, "a") not in fresh.node.held.by_key, "it was never started, and its end is told"
        assert fresh.node.ledger().promised_cores == 0.0
        return
    assert fresh.record("a").state is (ContainerState.RUNNING if reached == "started" else ContainerState.STARTING)
    cores_now = fresh.node.executors.held(fresh.now).at(fresh.now)[0]  # type: ignore[union-attr]
    assert cores_now == (2.0 if reached == "started" else 1.0), "its slots began when it was assigned"


def test_one_that_is_killed_as_soon_as_it_started_holds_no_more_after_a_restart(bed: Bed) -> None:
    bed.assign("a", cores(3, 1))
    container = bed.container("a")
    bed.decide(Withdraw(job=JOB, task="a", why="test"))
    bed.started("a")
    bed.now += 4.0
    assert bed.assign("b", cores(3)) == []
    fresh = restarted(bed, container, bed.container("b"))
    assert fresh.node.executors.held(fresh.now).at(fresh.now)[0] == 4.0  # type: ignore[union-attr]
