"""Executors on a node: admitted slot by slot, held by their profiles, started at once."""

from __future__ import annotations

import msgspec
import pytest

from agent.core import events as e
from agent.core import instructions as i
from agent.core.plans import Course
from agent.core.records import ContainerState
from penstock.model import EndedBy, Executor, Profile
from penstock.model.resource_vector import ResourceVector
from penstock.wire.master_api import CommandEnded, Promote, TellStages, Withdraw
from tests.fakes.node_bed import GIB, MIB
from tests.unit.agent.core.executors_bed import JOB, Bed, cores, restarted

# ---------------------------------------------------------------- admission


def test_profiles_that_fit_slot_by_slot_fit_though_their_peaks_do_not(bed: Bed) -> None:
    assert bed.assign("a", cores(3, 3, 1, 1)) == []
    assert bed.assign("b", cores(1, 1, 3, 3)) == []
    (why,) = bed.assign("c", cores(0.5, 0.5))
    assert why.startswith("cpu: 0.5 cores asked in slot 0 of its profile, 0 cores of 4 cores free then (0 s from now)")


def test_a_refusal_names_resource_and_slot(bed: Bed) -> None:
    assert bed.assign("a", Profile(memory_bytes=(GIB, GIB, 3 * GIB, 3 * GIB), cpu_cores=(1.0,))) == []
    bed.now += 3.0
    (why,) = bed.assign("b", Profile(memory_bytes=(GIB, 2 * GIB, GIB), cpu_cores=(1.0,)))
    assert why == "memory: 2 GiB asked in slot 1 of its profile, 1 GiB of 4 GiB free then (3 s from now)"
    assert (JOB, "b") not in bed.node.held.by_key


def test_promises_to_others_are_not_free(bed: Bed) -> None:
    bed.launch(cpu_cores=2.0, memory_bytes=GIB)
    assert "2 cores of 4 cores free" in bed.assign("a", cores(1, 2.5))[0]
    assert bed.assign("a", cores(1, 2)) == []


def test_a_resource_that_a_profile_does_not_name_is_held_by_its_promise(bed: Bed) -> None:
    assert bed.assign("a", Profile(cpu_cores=(1.0, 1.0)), memory_bytes=3 * GIB) == []
    assert "memory: 2 GiB asked" in bed.assign("b", cores(1, memory_bytes=2 * GIB))[0]
    assert bed.node.ledger().promised_memory_bytes == 3 * GIB


def test_disks_and_links_count_where_their_rate_is_known() -> None:
    profile = cores(1, disk_bytes_per_s=(8 * MIB,), network_bytes_per_s=(8 * MIB,))
    assert Bed().assign("a", profile) == []
    assert "disk: 8 MiB/s asked" in Bed(disk_bytes_per_s=4 * MIB).assign("a", profile)[0]
    assert "network: 8 MiB/s asked" in Bed(link_bytes_per_s=4 * MIB).assign("a", profile)[0]
    bed = Bed(disk_bytes_per_s=9 * MIB, link_bytes_per_s=9 * MIB)
    assert bed.assign("a", profile) == []
    assert "disk: 8 MiB/s asked in slot 0 of its profile, 1 MiB/s of 9 MiB/s free" in bed.assign("b", profile)[0]


def test_a_promise_of_a_link_of_unknown_rate_cannot_be_kept() -> None:
    assert "the link's rate is unknown" in Bed().assign("a", cores(1), network_bytes_per_s=MIB)[0]


def test_without_a_profile_it_is_admitted_by_its_promise(bed: Bed) -> None:
    assert bed.assign("a", None, cpu_cores=3.0, memory_bytes=GIB) == []
    assert "cpu: 2 cores asked, 1 of 4 not promised yet" in bed.assign("b", None, cpu_cores=2.0)[0]
    assert bed.node.ledger().promised_cores == 3.0


def test_work_on_slack_keeps_no_room_from_an_executor() -> None:
    bed = Bed(t_alloc=0.9)
    for name in ("x", "y", "z"):
        assert bed.assign(name, None, executor=False, opportunistic=True, cpu_cores=1.0) == []
    bed.started("x", "y", "z")
    bed.sample()
    assert bed.node.ledger().asked_cores == 3.0
    assert bed.assign("a", cores(4, 4)) == []
    assert bed.node.ledger().promised_cores == 4.0


def test_one_that_runs_on_slack_is_admitted_by_slack_and_follows_nothing() -> None:
    bed = Bed(t_alloc=0.5)
    assert "slack" in bed.assign("a", cores(1), opportunistic=True, cpu_cores=3.0)[0]
    assert bed.assign("b", cores(4), opportunistic=True, cpu_cores=1.0) == []
    assert bed.record("b").profile is None and bed.record("b").opportunistic
    assert bed.node.held.by_key[JOB, "b"].profile is None
    assert bed.node.ledger().promised_cores == 0.0


def test_the_profile_of_a_container_that_is_no_executor_is_nothing(bed: Bed) -> None:
    assert bed.assign("a", cores(9), executor=False, cpu_cores=4.0) == []
    assert bed.node.ledger().promised_cores == 4.0 and bed.record("a").profile is None


# ---------------------------------------------------------------- the ledger


def test_others_are_admitted_beside_the_highest_sum_that_is_still_to_come(bed: Bed) -> None:
    bed.assign("a", cores(3, 1, 1, 1))
    bed.assign("b", cores(1, 2, 1, 1))
    ledger = bed.node.ledger()
    assert ledger.promised_cores == 4.0, "the most at once, not the sum of both peaks"
    assert "not promised yet" in ledger.refuse_regular(0.5, 0)
    bed.now += 3.0
    bed.sample(0)
    bed.node.load(bed.now)
    assert bed.node.ledger().promised_cores == 3.0
    bed.launch(cpu_cores=1.0)
    assert "cpu" in bed.assign("c", cores(0.1))[0]
    assert bed.node.load(bed.now).promised_cores == 4.0


# ---------------------------------------------------------------- starting


def test_it_starts_though_every_slot_is_held_and_holds_none(bed: Bed) -> None:
    for number in range(4):
        assert bed.assign(f"r{number}", None, executor=False, cpu_cores=0.0, memory_bytes=0) == []
    assert bed.node.queues.idle().cpu == 0
    assert bed.assign("a", cores(2, 2)) == []
    assert bed.record("a").state is ContainerState.STARTING
    assert bed.record("a").kind is None and not bed.record("a").opportunistic
    assert bed.record("a").executor == Executor(application="sort", run="monday")
    bed.started("a")
    assert bed.record("a").limits.cpu_cores == 2.0
    bed.exit(bed.container("a"))
    assert bed.node.queues.idle().cpu == 0
    assert [one.task for one in bed.to_master(CommandEnded)] == ["a"]


def test_the_alarm_is_set_for_the_first_change_of_its_profile(bed: Bed) -> None:
    bed.assign("a", cores(1, 2, 3))
    wakes = [one.at for one in bed.done if isinstance(one, i.Wake)]
    assert wakes and bed.now < wakes[-1] <= bed.now + 3.0


def test_withdrawn_it_is_killed_and_gives_back_its_resources(bed: Bed) -> None:
    bed.assign("a", cores(4))
    bed.started("a")
    container = bed.container("a")
    bed.decide(Withdraw(job=JOB, task="a"))
    assert any(isinstance(one, i.KillContainer) for one in bed.done)
    bed.exit(container, 137)
    assert bed.node.ledger().promised_cores == 0.0


@pytest.mark.parametrize("again", [False, True])
def test_it_reports_whether_it_was_stopped_to_run_again(bed: Bed, again: bool) -> None:
    for task in ("runs", "begins"):
        bed.assign(task, cores(1))
    bed.started("runs")
    containers = [bed.container(task) for task in ("runs", "begins")]
    for task in ("runs", "begins"):
        bed.decide(Withdraw(job=JOB, task=task, again=again))
    bed.begin(containers[1])
    for container in containers:
        bed.exit(container, 137)
    by = EndedBy.PREEMPTED if again else EndedBy.CANCELLED
    assert [(told.task, told.ended.by) for told in bed.to_master(CommandEnded)] == [("runs", by), ("begins", by)]


def test_promoted_it_is_held_by_its_promise_and_takes_no_slot(bed: Bed) -> None:
    bed.assign("a", cores(1), opportunistic=True, cpu_cores=2.0)
    bed.started("a")
    for number in range(4):
        bed.assign(f"r{number}", None, executor=False, cpu_cores=0.0, memory_bytes=0)
    assert bed.decide(Promote(job=JOB, task="a")) == []
    assert not bed.record("a").opportunistic and bed.record("a").kind is None
    assert bed.node.ledger().promised_cores == 2.0
    bed.exit(bed.container("a"))
    assert bed.node.ledger().promised_cores == 0.0


def test_one_that_waited_for_slack_starts_when_it_is_promoted() -> None:
    bed = Bed(t_alloc=0.5, opportunistic_queue=1)
    assert bed.assign("a", None, opportunistic=True, cpu_cores=3.0) == []
    assert not bed.node.held.by_key[JOB, "a"].container
    assert bed.decide(Promote(job=JOB, task="a")) == []
    assert bed.record("a").kind is None


# ---------------------------------------------------------------- the next agent
# An agent that restarts goes on with the executors of its node: in their slots, and with their recordings.


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


def test_the_recording_before_a_restart_is_reported_with_the_one_after_it(bed: Bed) -> None:
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
    assert [mean[0] for mean in use.mean] == [500] * 31 + [2000, 2000], "3 s of CPU in the 6 s without a sample"
    fresh.exit(fresh.container("a"))
    (use,) = fresh.beat().executors
    assert (use.first, use.ended) == (33, True)


def test_half_a_run_is_not_reported_as_a_whole_one(bed: Bed) -> None:
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


# ---------------------------------------------------------------- plans that are not the profile's alone


def test_after_a_restart_an_executor_whose_stage_ended_early_is_planned_around_the_others(bed: Bed) -> None:
    bed.assign("a", cores(1, 3, stages=(1, 2)))
    bed.assign("b", cores(3, 1))
    bed.started("a", "b")
    bed.now += 1.0
    bed.decide(TellStages(job=JOB, ended=1))
    bed.send(e.Woken(bed.now))
    assert bed.node.ledger().promised_cores == 4.0
    fresh = restarted(bed, bed.container("a"), bed.container("b"), after_s=0.0)
    assert fresh.node.ledger().promised_cores == 4.0


def test_after_a_restart_no_corrected_executor_is_planned_out_by_the_others(bed: Bed) -> None:
    for task in ("a", "b"):
        bed.assign(task, cores(2, 2))
        bed.started(task)
        record = bed.record(task)
        record.go_on(Course(scale=ResourceVector(2.0, 1.0, 1.0, 1.0), count=1))
        bed.journal["containers", record.container] = msgspec.msgpack.encode(record)
    fresh = restarted(bed, bed.container("a"), bed.container("b"))
    assert [plan.amounts[0][0] for plan in fresh.node.elasticity.plans(fresh.now).values()] == [2.0, 2.0]
