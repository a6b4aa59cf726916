"""Executors in the round: forecast once, placed by their profiles where every slot has room, else with the reason why
not.
"""

from __future__ import annotations

from typing import Any

import pytest

from master.core import events as e
from master.core.executor_placement import Examined
from master.core.free_capacity import FreeCapacity
from master.core.node import Node
from master.placement.executors import WaitingExecutors
from master.prediction import Settings
from penstock.model import EndedBy, Profile, Sizing
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import command
from tests.unit.master.core.executor_bed import CAPACITY, MIB, ExecutorBed, executor, profile

APP = "u/app"


def assigned(bed: ExecutorBed) -> list[tuple[str, str]]:
    return [(decision.request.task, node) for node, decision in bed.decisions_of(api.Assign)]


def test_the_forecast_of_equal_executors_is_requested_once() -> None:
    bed = ExecutorBed("a")
    bed.executors(executor("e0"), executor("e1"), executor("e2", cores=2.0), executor("o", "other"))
    asked = [(each.application, each.settings) for each in bed.predicted]
    assert asked == [
        (APP, Settings(0, 1.0, 100 * MIB)), (APP, Settings(0, 2.0, 100 * MIB)),
        ("u/other", Settings(0, 1.0, 100 * MIB)),
    ]  # fmt: skip
    bed.round()
    assert len(bed.predicted) == 3
    assert assigned(bed) == []
    assert bed.waits() == "4 executors wait: for what is forecast of them"


def test_the_sizing_of_an_executor_is_part_of_the_request() -> None:
    bed = ExecutorBed("a")
    bed.executors(executor("e0"), executor("e1", sizing=Sizing.SHARED))
    assert [each.sizing for each in bed.predicted] == [Sizing.HARD, Sizing.SHARED]
    hard, shared = bed.predicted
    bed.serve(e.Forecasted(APP, shared.settings, profile((1, 100)), "a test", 0.1, Sizing.SHARED))
    bed.round()
    assert assigned(bed) == [("e1", "a")]
    bed.serve(e.Forecasted(APP, hard.settings, profile((1, 100)), "a test", 0.1, Sizing.HARD))
    bed.round()
    assert assigned(bed) == [("e1", "a"), ("e0", "a")]


def test_placing_one_of_many_alike_searches_no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[object] = []
    monkeypatch.setattr(WaitingExecutors, "remove", lambda self, executor, demand: removed.append(executor))
    bed = ExecutorBed("a", forecasts={APP: profile((0.01, 1))})
    bed.executors(*[executor(f"e{number}", cores=0.01, mib=1) for number in range(50)])
    assert bed.round() == [(f"e{number}", "a") for number in range(50)]
    assert removed == []


def test_the_nodes_are_searched_once_and_on_demand_for_what_equal_executors_of_several_jobs_lack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[object] = []
    lacks = FreeCapacity.lacks
    monkeypatch.setattr(FreeCapacity, "lacks", lambda *a: (searched.append(a), lacks(*a))[1])
    bed = ExecutorBed("a", forecasts={APP: profile((4, 100))})
    bed.beats("a", [(1, 900)])
    for job in ("j", "k", "l"):
        bed.job("a", job)
        bed.executors(executor("e", cores=4.0), job=job)
    bed.round()
    assert searched == []
    bed.serve(e.Received("a", api.JobEnded(job="l", done=False)))
    assert bed.listed("l").state == "ended"
    assert searched == [], "a job that ended waits for nothing"
    assert all("of 1 node 1 lacks cpu" in bed.waits(job) for job in "jk")
    assert len(searched) == 1


def test_a_forecast_places_them_by_minfrag_and_the_node_gets_the_profile() -> None:
    bed = ExecutorBed("a", forecasts={APP: profile((1, 100), (3, 500), (1, 100))})
    bed.executors(executor("e0"))
    assert bed.round() == [("e0", "a")]
    ((_, decision),) = bed.decisions_of(api.Assign)
    assert decision.profile == profile((1, 100), (3, 500), (1, 100))
    assert decision.why.startswith("minfrag: DRR ")
    assert decision.why.endswith("; a test")
    held = bed.cluster.nodes["a"].held["j", "e0"]
    assert (held.cores, held.memory_bytes) == (3, 500 * MIB)


def test_two_that_exclude_each_other_by_peaks_share_a_node_if_their_profiles_fit() -> None:
    early, late = profile((3, 100), (1, 100)), profile((1, 100), (3, 100))
    bed = ExecutorBed("a", forecasts={"u/early": early, "u/late": late})
    bed.executors(executor("e", "early"), executor("l", "late"), executor("e2", "early"))
    placed = bed.round()
    assert sorted(placed) == [("e", "a"), ("l", "a")]
    assert bed.waits() == "1 executor waits: of 1 node 1 lacks cpu within the 2 s of its profile"


def test_a_policy_that_reserves_peaks_places_one_of_them_and_holds_the_peak() -> None:
    early, late = profile((3, 100), (1, 100)), profile((1, 100), (3, 100))
    bed = ExecutorBed("a", forecasts={"u/early": early, "u/late": late}, executor_placement="static")
    bed.executors(executor("e", "early"), executor("l", "late"))
    assert bed.round() == [("e", "a")]
    ((_, decision),) = bed.decisions_of(api.Assign)
    assert decision.profile == profile((3, 100))


def test_a_node_s_availability_over_time_is_advanced_by_the_time_passed() -> None:
    bed = ExecutorBed("a", forecasts={APP: profile((3, 100), (3, 100))})
    bed.beats("a", [(1, 900), (1, 900), (4, 900)])
    bed.executors(executor("e0"))
    assert bed.round(0.1) == []
    bed.now = 1.5
    bed.beats("a")
    assert bed.round(0.1) == []  # half of the slot that begins now has one core
    bed.now = 2.0
    bed.beats("a")
    assert bed.round(0.1) == [("e0", "a")]


def test_assigned_resources_that_are_not_reported_yet_are_not_free() -> None:
    bed = ExecutorBed("a", forecasts={APP: profile((2, 100), (2, 100), (2, 100))})
    bed.beats("a", [(4, 900)])
    bed.executors(executor("e0"), executor("e1"))
    assert len(bed.round()) == 2
    bed.executors(executor("e2"))
    bed.beats("a", decided=0)
    assert bed.round() == []
    bed.now = 3.2  # no node has reported; the profiles of the others are over by now
    bed.beats("a", decided=0)
    assert bed.round() == [("e2", "a")]


def test_a_node_that_reports_its_availability_includes_those_that_it_has_decided() -> None:
    bed = ExecutorBed("a", forecasts={APP: profile((2, 100), (2, 100))})
    bed.beats("a", [(4, 900)])
    bed.executors(executor("e0"))
    bed.round()
    bed.beats("a", [(2, 800), (2, 800), (4, 900)])
    bed.executors(executor("e1"), executor("e2"))
    assert bed.round() == [("e1", "a")]


def test_a_reservation_of_one_slot_holds_until_the_end() -> None:
    bed = ExecutorBed("a", forecasts={APP: profile((3, 100))})
    bed.beats("a", [(4, 900)] * 50 + [(2, 900)])
    bed.executors(executor("e0"))
    assert bed.round() == []
    assert "1 lacks cpu" in bed.waits()


def test_regular_work_and_executors_do_not_take_the_same_room() -> None:
    bed = ExecutorBed("a", forecasts={APP: profile((3, 900), (1, 100))})
    bed.executors(executor("e0"))
    bed.ready("a", command("c", memory=500, cores=1))
    assert bed.round() == [("e0", "a")]
    assert "memory" in bed.waits()
    assert bed.cluster.table.pending[0].tolist() == [0.0, 0.0, 0.0]  # it is in no queue
    bed = ExecutorBed("a", forecasts={APP: profile((3, 900), (1, 100))})
    bed.ready("a", command("c", memory=500, cores=1))
    bed.round()
    bed.executors(executor("e0"))
    assert bed.round() == []


def test_one_that_is_pinned_waits_for_its_node_and_others_do_not_take_part() -> None:
    bed = ExecutorBed("a", "b", forecasts={APP: profile((3, 100), (3, 100))})
    bed.executors(executor("e0", nodes=("b",)), executor("e1", nodes=("b",)))
    assert bed.round() == [("e0", "b")]
    assert bed.waits() == "1 executor waits: of 1 node 1 lacks cpu within the 2 s of its profile"
    bed.executors(executor("e2"))
    assert bed.round() == [("e2", "a")]


def test_a_refused_one_is_proposed_elsewhere_and_there_again_after_a_heartbeat() -> None:
    bed = ExecutorBed("a", "b", forecasts={APP: profile((1, 100), (1, 100))})
    bed.answering = False
    bed.executors(executor("e0"))
    ((_, first),) = bed.round()
    number = bed.numbers[first]
    refusal = api.Refusal(index=len(bed.cluster.nodes[first].requests.unanswered[number]) - 1, reason="full")
    bed.serve(e.Answered(first, number, [refusal]))
    ((_, second),) = bed.round()
    assert second != first


def test_no_one_is_wanted_more_of_than_the_largest_node_has() -> None:
    bed = ExecutorBed("a", forecasts={APP: profile((4.2, 1050), (4.2, 1050))})
    bed.executors(executor("e0"))
    assert bed.round() == [("e0", "a")]
    ((_, decision),) = bed.decisions_of(api.Assign)
    assert decision.profile == profile((4, 1000), (4, 1000))


def test_a_known_disk_counts_and_an_unknown_one_excludes_none() -> None:
    wanted = Profile(slot_s=1.0, cpu_cores=(1.0, 1.0), disk_bytes_per_s=(50 * MIB, 50 * MIB))
    bed = ExecutorBed("a", "b", forecasts={APP: wanted})
    slow = api.Availability(slot_s=1.0, capacity=(4000, 100 * 1024, 0, 1000), slots=[(4000, 20 * 1024, 0, 1000)])
    bed.heartbeat("a", availability=slow)
    bed.heartbeat(
        "b", availability=api.Availability(slot_s=1.0, capacity=(4000, 0, 0, 1000), slots=[(4000, 0, 0, 900)])
    )
    bed.executors(executor("e0", nodes=("a",)), executor("e1"))
    assert bed.round() == [("e1", "b")]
    assert bed.waits() == "1 executor waits: of 1 node 1 lacks disk within the 2 s of its profile"


@pytest.mark.parametrize("times", [{"elapsed_s": 1e300}, {"slot_s": 1e-300}, {"elapsed_s": 1e300, "slot_s": 1e-300}])
def test_of_a_report_that_is_over_long_since_the_last_slot_counts(times: dict[str, float]) -> None:
    bed = ExecutorBed("a", forecasts={APP: profile((1, 100), (3, 100))})
    slots = [(4000, 0, 0, 900), (2000, 0, 0, 900)]
    bed.heartbeat("a", availability=api.Availability(**{"slot_s": 1.0, "capacity": CAPACITY, "slots": slots, **times}))
    bed.executors(executor("e0"))
    assert bed.round() == []
    assert bed.waits() == "1 executor waits: of 1 node 1 lacks cpu within the 2 s of its profile"


def test_long_profiles_are_looked_at_in_longer_slots() -> None:
    long = profile(*[(1, 100)] * 9, (4, 100))
    bed = ExecutorBed("a", forecasts={APP: long}, executor_horizon_slots=4)
    bed.beats("a", [(4, 900)] * 9 + [(3, 900)] * 10)
    bed.executors(executor("e0"))
    assert bed.round() == []
    bed.beats("a", [(4, 900)] * 13 + [(1, 900)])
    assert bed.round() == [("e0", "a")]


def test_a_new_run_makes_the_forecast_of_waiting_executors_stale() -> None:
    bed = ExecutorBed("a", forecasts={APP: profile((5, 100), (5, 100))})
    bed.executors(executor("e0", cores=4), executor("e1", cores=4))
    bed.round()
    assert len(bed.predicted) == 1
    bed.serve(e.ForecastsOutdated(APP))
    bed.serve(e.ForecastsOutdated("v/app"))
    bed.round()
    assert len(bed.predicted) == 2


def test_one_that_wants_nothing_but_slack_is_a_command_there() -> None:
    bed = ExecutorBed("a")
    bed.executors(executor("e0"), opportunistic="only")
    assert bed.round() == [("e0", "a")]
    assert bed.predicted == []
    ((_, decision),) = bed.decisions_of(api.Assign)
    assert decision.opportunistic
    assert decision.profile is None


def test_nodes_that_have_not_reported_since_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from master.core import executor_round

    looked: list[list[str]] = []

    def watched(snapshot: Any, nodes: list[Node], workers: list[int], *more: Any) -> Any:
        looked.append([nodes[worker].name for worker in workers])
        return Examined(snapshot, nodes, workers, *more)

    monkeypatch.setattr(executor_round, "Examined", watched)
    bed = ExecutorBed("a", "b", forecasts={APP: profile((3, 100), (3, 100))})
    bed.executors(executor("e0"), executor("e1"), executor("e2"))
    bed.round(0.1)
    bed.beats("b")
    bed.round(0.1)
    bed.round(0.1)
    bed.round(1.0)
    assert looked == [["a", "b"], ["b"], ["a", "b"]]


def test_the_slots_of_nodes_without_room_now_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    from master.core import executor_placement

    looked: list[list[str]] = []
    before = executor_placement.free_capacity

    def watched(*arguments: Any) -> Any:
        room = before(*arguments)
        looked.append([node.name for node in room.nodes])
        return room

    monkeypatch.setattr(executor_placement, "free_capacity", watched)
    bed = ExecutorBed("a", "b", "c", forecasts={APP: profile((1, 100), (3, 100))})
    for name, slots in (("a", [(0.5, 900), (4, 900)]), ("b", [(2, 900), (2, 900)]), ("c", [(4, 50)])):
        bed.beats(name, slots)
    bed.executors(executor("e0"))
    assert bed.round() == []
    assert looked == [["b"]]
    assert "of 3 nodes 2 lack cpu, 1 lacks memory" in bed.waits()


def test_the_resources_that_they_lack_are_known_while_no_node_reports() -> None:
    bed = ExecutorBed("a", forecasts={APP: profile((3, 100), (3, 100))})
    bed.executors(executor("e0"), executor("e1"))
    bed.round(0.1)
    lacking = bed.waits()
    assert lacking.startswith("1 executor waits: of 1 node 1 lacks cpu")
    bed.round(0.1)
    assert bed.waits() == lacking


def test_without_a_node_that_is_the_reason() -> None:
    bed = ExecutorBed("a", forecasts={APP: profile((3, 100), (3, 100))})
    bed.executors(executor("e0"))
    bed.serve(e.NodeAway("a"))
    bed.round()
    assert bed.waits() == "1 executor waits: no node is connected"


def test_bounds_that_no_node_has_are_refused_while_nothing_better_is_known() -> None:
    """A forecast is a better source than the bounds that a user wrote."""
    bed = ExecutorBed("a", forecasts={APP: profile((1, 5000)), "u/known": profile((1, 100), (2, 100))})
    bed.executors(executor("e0", mib=5000), executor("known", "known", mib=5000))
    assert bed.round() == [("known", "a")]
    assert "ask for less" in bed.waits()
    for _ in range(4):
        bed.now += 4.0
        bed.beats("a")
        bed.round()
    ended = {decision.task: decision.ended.by for _, decision in bed.decisions_of(api.TellEnded)}
    assert ended == {"e0": EndedBy.REFUSED}


def test_work_on_slack_keeps_no_room_from_an_executor() -> None:
    bed = ExecutorBed("a", forecasts={APP: profile((4, 900), (4, 900))})
    bed.ready("a", *[command(f"o{i}", memory=200, cores=1.0) for i in range(3)], opportunistic="only")
    assert len(bed.round()) == 3
    assert all(held.opportunistic for held in bed.cluster.nodes["a"].held.values())
    bed.executors(executor("e0", cores=4.0, mib=900))
    assert bed.round() == [("e0", "a")], "its node stops work in the way, as for any task"
