"""The manager: yes or no at once, in Unix time; its records are the same after a restart."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.reservations.follower import Follower
from master.reservations.rdl import Bundle, RdlError
from master.reservations.reservation_manager import (
    Declined,
    Entry,
    ManagerSettings,
    ReservationManager,
    named_bundles,
)
from master.reservations.timeline import free_runs
from master.store.database import Database, StoreError
from master.store.reservations import ReservationRecord, ReservationStore, from_record, to_keep

NOW = 1_800_000_000.0
CLUSTER = Bundle(cpu_cores=10.0, memory_bytes=100 << 30)


def manager(**settings: object) -> ReservationManager:
    bundles = {"b": Bundle(cpu_cores=1.0, memory_bytes=1 << 30)}
    one = ReservationManager(ManagerSettings(**{"step_s": 1.0, "bundles": bundles} | settings))  # type: ignore[arg-type]
    assert one.set_capacity(CLUSTER, NOW) == []
    return one


def entry(id: str, rdl: str, user: str = "eve") -> Entry:  # noqa: A002 - the field's name
    return Entry(id, "", user, rdl, NOW)


def pieces(one: ReservationManager, id: str) -> list[tuple[float, float, int]]:  # noqa: A002 - the field's name
    turns = one.kept(id).turns.values()
    return sorted((one.unix(p.start) - NOW, one.unix(p.finish) - NOW, p.number) for turn in turns for p in turn.pieces)


def test_a_promise_in_unix_time() -> None:
    one = manager()
    one.create(entry("r-1", "window(atom(b,4,4,20s,80),+10s,+30s)"), NOW)
    assert pieces(one, "r-1") == [(10, 30, 4)]
    assert one.promised(NOW) == {}
    assert one.changes_at(NOW) == NOW + 10
    promise = one.promised(NOW + 10)["r-1"]
    assert (promise.bundles, promise.amounts) == (4, (4.0, 0.0, 0.0, 4 << 30))
    assert one.changes_at(NOW + 10.5) == NOW + 30
    assert one.promised(NOW + 30) == {}
    assert one.changes_at(NOW + 30) is None


def test_a_promise_ends_by_its_deadline_and_begins_no_sooner_than_asked() -> None:
    one = manager(step_s=60.0)
    one.create(entry("r-1", "window(atom(b,4,4,1min,4min),+0s,+90s)"), NOW)
    assert pieces(one, "r-1") == [(0, 60, 4)]
    one.create(entry("r-2", "window(atom(b,4,4,1min,4min),+90s,+181s)"), NOW)
    assert pieces(one, "r-2") == [(120, 180, 4)]
    with pytest.raises(
        Declined, match=r"ends at 2027-01-15T08:01:00Z, not .* at 2027-01-15T08:01:00Z .* of 60 s"
    ) as said:
        one.create(entry("r-3", "window(atom(b,1,1,1min,1min),+30s,+90s)"), NOW)
    assert said.value.malformed


@pytest.mark.parametrize(
    ("window", "begins_s"),
    [
        ("+1h,+3h", [3600, 90_000, 176_400]),
        ("+30h,+32h", [108_000, 194_400]),
        ("2027-01-15T10:00:00Z,2027-01-15T12:00:00Z", [7200, 93_600, 180_000]),
        ("2026-12-06T10:00:00Z,2026-12-06T12:00:00Z", [7200, 93_600, 180_000]),
        ("2027-01-16T10:00:00+02:00,2027-01-16T12:00:00+02:00", [86_400, 172_800]),
        ("0,2h", [57_600, 144_000, 230_400]),
    ],
)
@pytest.mark.parametrize("json", [False, True])
def test_a_recurring_reservation_begins_at_its_time_and_again_each_period(
    window: str, begins_s: list[float], json: bool
) -> None:
    """Now is 2027-01-15T08:00:00Z; three days are planned."""
    one = manager(planner="gree_early", horizon_s=3 * 86_400.0)
    if json:
        rdl: Any = {"window": [{"atom": ["b", 4, 4, "1h", "4h"]}, *window.split(",")], "every": "24h"}
    else:
        rdl = f"window(atom(b,4,4,1h,4h),{window}) every 24h"
    one.create(Entry("r", "", "eve", rdl, NOW), NOW)
    assert pieces(one, "r") == [(begins, begins + 3600, 4) for begins in begins_s]
    one.advance(NOW + 86_400)
    after = [begins for begins in [*begins_s, begins_s[-1] + 86_400] if begins + 3600 > 86_400]
    assert pieces(one, "r") == [(begins, begins + 3600, 4) for begins in after]


def test_a_part_without_a_window_lies_in_the_period_of_one_with_a_window() -> None:
    one = manager(planner="gree_early", horizon_s=2 * 86_400.0)
    one.create(entry("r", "order(window(atom(b,1,1,1h,1h),+1h,+20h),atom(b,1,1,1h,1h)) every 24h"), NOW)
    assert pieces(one, "r") == [(h * 3600, h * 3600 + 3600, 1) for h in (1, 2, 25, 26)]


def test_a_recurrence_without_a_turn_or_with_too_many_is_refused() -> None:
    one = manager()
    for rdl, said in (
        ("window(atom(b,1,1,1h,1h),+8d,+9d) every 24h", "no turn of it begins within the plan's horizon"),
        ("window(atom(b,1,1,1h,1h),+1h,+3h) every 24h until +30min", "and before its end"),
        ("window(atom(b,1,1,5h,5h),+1h,+3h) every 24h", "turn 0: its lease takes 5 h"),
        ("atom(b,1,1,1,1) every 1s", "604800 turns of it lie within the plan's horizon; at most 10000"),
    ):
        with pytest.raises(Declined, match=said):
            one.create(entry("r", rdl), NOW)


def test_a_refusal_has_its_reason() -> None:
    one = manager()
    with pytest.raises(Declined, match="the cluster has 10") as said:
        one.create(entry("r-1", "window(atom(b,11,11,5s,55),+0s,+30s)"), NOW)
    assert not said.value.malformed
    with pytest.raises(Declined, match=r"expected|character") as said:
        one.create(entry("r-2", "window(atom(b,1,1,5s,5),+0s,"), NOW)
    assert said.value.malformed
    one.create(entry("r-3", "window(atom(b,8,8,20s,160),+0s,+20s)"), NOW)
    with pytest.raises(Declined, match="no room"):
        one.create(entry("r-4", "window(atom(b,8,8,20s,160),+0s,+20s)"), NOW)
    with pytest.raises(Declined, match="already"):
        one.create(entry("r-3", "atom(b,1,1,1,1)"), NOW)
    for unknown in (lambda: one.delete("r-9", NOW), lambda: one.kept("r-9"), lambda: one.update("r-9", "x", NOW)):
        with pytest.raises(Declined):
            unknown()


def test_a_refusal_has_times_and_sizes() -> None:
    one = manager(most_at_once=0.5, most_over_time=0.4, window_s=100.0)  # NOW is 2027-01-15 08:00 in UTC
    for rdl, said in (
        ("window(atom(b,1,1,90s,90),+0s,+1min)", "its lease takes 1.5 min, and from 2027-01-15T08:00:00Z to its end at "
         "2027-01-15T08:01:00Z it has 1 min"),
        ("window(atom(b,1,1,1s,1),2020-01-01T00:00:00Z,2020-01-02T00:00:00Z)", "its end at 2020-01-02T00:00:00Z is not "
         "after 2027-01-15T08:00:00Z, when it could begin; give it a later end"),
        ("window(atom(b,1,2,1s,7200),+0s,+1min)", "2 h of a bundle at 2 at once takes 1 h"),
        ("atom(<200GiB>,1,1,5s,5)", "1 bundle wants 200 GiB of memory; the cluster has 100 GiB of memory"),
        ("atom(<1GB/s disk>,1,1,5s,5)", "1 bundle wants 954 MiB/s of disk; the cluster has nothing of disk"),
        ("window(atom(b,6,6,5s,30),+10s,+15s)", "eve would have 60.0% of the cpu at 2027-01-15T08:00:10Z, and may"),
        ("window(atom(b,5,5,90s,450),+0s,+90s)", "45.0% of the cpu from 2027-01-15T07:59:50Z to 2027-01-15T08:01:30Z"),
    ):  # fmt: skip
        with pytest.raises(Declined) as no:
            one.create(entry("r", rdl), NOW)
        assert said in str(no.value)
        assert "step" not in str(no.value)


def test_an_update_that_does_not_fit_keeps_the_former_state() -> None:
    one = manager()
    one.create(entry("r-1", "window(atom(b,4,4,20s,80),+0s,+20s)"), NOW)
    with pytest.raises(Declined, match="keeps what it had"):
        one.update("r-1", "window(atom(b,40,40,20s,800),+0s,+20s)", NOW)
    assert pieces(one, "r-1") == [(0, 20, 4)]
    one.update("r-1", "window(atom(b,5,5,20s,100),+0s,+20s)", NOW)
    assert pieces(one, "r-1") == [(0, 20, 5)]
    assert one.entries["r-1"].rdl == "window(atom(b,5,5,20s,100),+0s,+20s)"


def test_a_quota_counts_the_tenant() -> None:
    one = manager(most_at_once=0.5, tenants={"eve": "research", "bob": "research"})
    one.create(entry("r-1", "window(atom(b,3,3,20s,60),+0s,+20s)"), NOW)
    with pytest.raises(Declined, match="research would have 70"):
        one.create(entry("r-2", "window(atom(b,4,4,20s,80),+0s,+20s)", "bob"), NOW)
    one.create(entry("r-3", "window(atom(b,4,4,20s,80),+0s,+20s)", "ann"), NOW)


def test_a_reservation_that_a_smaller_cluster_cannot_keep_is_dropped_and_reported() -> None:
    one = manager()
    one.create(entry("r-1", "window(atom(b,5,5,20s,100),+0s,+20s)"), NOW)
    one.create(entry("r-2", "window(atom(b,5,5,20s,100),+0s,+20s)", "bob"), NOW)
    dropped = one.set_capacity(Bundle(cpu_cores=6.0, memory_bytes=100 << 30), NOW)
    assert [(each.id, each.owner) for each in dropped] == [("r-2", "bob")]
    assert [(each.id, bool(each.dropped)) for each in one.owned()] == [("r-1", False), ("r-2", True)]
    with pytest.raises(Declined, match="dropped"):
        one.kept("r-2")
    with pytest.raises(Declined, match="create another"):
        one.update("r-2", "atom(b,1,1,1,1)", NOW)
    one.delete("r-2", NOW)
    assert [each.id for each in one.owned()] == ["r-1"]


def test_drained_nodes_are_planned_around_for_an_hour_and_come_back() -> None:
    one = manager()
    drained = Bundle(cpu_cores=6.0, memory_bytes=50 << 30)
    one.create(entry("now", "window(atom(b,4,4,20s,80),+0s,+20s)"), NOW)
    one.create(entry("later", "window(atom(b,8,8,20s,160),+10s,+20min)"), NOW)
    one.create(entry("soon", "window(atom(b,8,8,20s,160),+30min,+31min)"), NOW)
    one.create(entry("tomorrow", "window(atom(b,8,8,20s,160),+24h,+25h)"), NOW)
    dropped = one.set_capacity(CLUSTER, NOW, drained)
    assert [each.id for each in dropped] == ["later", "soon"], "no place of theirs is wide enough within the hour"
    assert [each.id for each in one.owned() if not each.dropped] == ["now", "tomorrow"]
    assert one.set_capacity(CLUSTER, NOW + 100, drained) == []
    with pytest.raises(Declined):
        one.create(entry("x", "window(atom(b,8,8,20s,160),+0s,+30min)"), NOW + 100)
    assert one.set_capacity(CLUSTER, NOW + 1801, drained) == []
    with pytest.raises(Declined):
        one.create(entry("x", "window(atom(b,8,8,20s,160),+45min,+55min)"), NOW + 1801)
    assert one.set_capacity(CLUSTER, NOW + 3000) == []
    one.create(entry("x", "window(atom(b,8,8,20s,160),+0s,+30min)"), NOW + 3000)


def test_a_reservation_that_a_lost_node_took_comes_back_with_it() -> None:
    one = manager()
    smaller = Bundle(cpu_cores=6.0, memory_bytes=100 << 30)
    begun = "window(atom(b,8,8,10min,4800),+0s,+10min)"
    one.create(entry("begun", begun), NOW)
    one.create(entry("soon", "window(atom(b,8,8,20s,160),+30min,+31min)", "bob"), NOW)
    one.create(entry("movable", "window(atom(b,8,8,20s,160),+11min,+20min)"), NOW)
    one.create(entry("daily", "window(atom(b,8,8,20s,160),+12h,+13h)"), NOW)
    before = pieces(one, "soon")
    assert {each.id for each in one.set_capacity(smaller, NOW + 60)} == {"begun", "soon", "movable"}
    with pytest.raises(Declined, match="lost are not counted on"):
        one.create(entry("x", "window(atom(b,8,8,20s,160),+6h,+7h)"), NOW + 60)
    again = one.set_capacity(CLUSTER, NOW + 74)
    assert [each.id for each in again] == ["begun", "soon", "movable"]
    assert pieces(one, "soon") == before
    assert pieces(one, "begun") == [(0, 60, 8), (74, 600, 8)], "the rest of its time"
    assert [each.dropped for each in one.owned()] == [""] * 4
    one.create(entry("x", "window(atom(b,8,8,20s,160),+6h,+7h)"), NOW + 74)


def test_a_reservation_that_a_lost_node_took_is_given_back_only_where_there_is_room_and_its_owner_wants_it() -> None:
    one = manager()
    smaller = Bundle(cpu_cores=6.0, memory_bytes=100 << 30)
    one.create(entry("late", "window(atom(b,8,8,20s,160),+0s,+70min)"), NOW)
    assert one.set_capacity(smaller, NOW) == []
    assert pieces(one, "late") == [(4180, 4200, 8)], "beyond the hour that is repaired"
    dropped = one.set_capacity(smaller, NOW + 1801)
    assert [each.id for each in dropped] == ["late"], "its time draws near, and the node is not back"
    one.delete("late", NOW + 1801)
    one.create(entry("rigid", "window(atom(b,6,6,20s,120),+10min,+20min)"), NOW + 1801)
    one.set_capacity(Bundle(cpu_cores=2.0, memory_bytes=100 << 30), NOW + 1802)
    assert one.entries["rigid"].dropped
    assert one.set_capacity(Bundle(cpu_cores=4.0, memory_bytes=100 << 30), NOW + 1803) == []
    one.delete("rigid", NOW + 1803)
    assert one.set_capacity(CLUSTER, NOW + 1804) == [], "its owner does not want it any more"


def test_a_cluster_that_became_smaller_for_good_keeps_the_rest_and_drops_the_others_in_time() -> None:
    one = manager()
    smaller = Bundle(cpu_cores=6.0, memory_bytes=100 << 30)
    one.create(entry("tomorrow", "window(atom(b,8,8,20s,160),+24h,+25h)"), NOW)
    one.create(entry("small", "window(atom(b,2,2,20s,40),+24h,+25h)"), NOW)
    at, dropped = NOW, []
    while at < NOW + 25 * 3600:
        at += 600
        dropped += [(each.id, at - NOW) for each in one.set_capacity(smaller, at)]
        one.advance(at)
    [(id, told_at)] = dropped  # noqa: A001 - the field's name
    assert id == "tomorrow"
    assert 23 * 3600 <= told_at <= 24.9 * 3600, "before its time"


def test_promises_are_planned_anew_around_a_drained_node() -> None:
    one = manager()
    one.create(entry("r", "window(atom(b,2,8,10s,160),+0s,+10min)"), NOW)
    one.create(entry("other", "window(atom(b,4,4,10s,80),+0s,+10min)"), NOW)
    assert one.set_capacity(CLUSTER, NOW, Bundle(cpu_cores=6.0)) == []
    for second in range(0, 600, 10):
        assert sum(each.amounts[0] for each in one.promised(NOW + second).values()) <= 4.0


def test_room_is_made_before_the_time_has_come() -> None:
    one = manager()
    one.create(Entry("r", "", "eve", "window(atom(<1core>,3,3,20s,60),+10s,+30s)", NOW), NOW)
    plan = Follower(one, lead_s=2.0)
    assert plan.promised(NOW + 7.9) == {}
    assert plan.promised(NOW + 8.0)["r"].cores == 3.0
    assert plan.promised(NOW + 29.0)["r"].cores == 3.0, "to its end"
    assert plan.promised(NOW + 30.0) == {}


def test_ended_reservations_are_dropped() -> None:
    one = manager()
    one.create(entry("r-1", "window(atom(b,5,5,20s,100),+0s,+20s)"), NOW)
    one.advance(NOW + 19)
    assert [each.id for each in one.owned("eve")] == ["r-1"]
    one.advance(NOW + 20)
    assert one.owned() == []


def test_a_bundle_of_the_configuration_is_named_where_it_is_wrong() -> None:
    assert named_bundles({"b": "<2GB,1core>"})["b"].cpu_cores == 1
    with pytest.raises(RdlError, match=r"^small: "):
        named_bundles({"small": "2GB"})


_ASKS = st.sampled_from(
    [
        "window(atom(b,2,4,5s,40),+0s,+60s)",
        "atom(b,1,3,5s,20)",
        "window(any(atom(b,9,9,5s,45),order(atom(b,1,2,4s,8),atom(b,3,3,4s,12),no_gap)),+5s,+50s)",
        "all(atom(b,1,1,5s,5),window(atom(b,2,2,5s,10),+0s,+30s))",
        "window(atom(b,1,2,3s,6),+0s,+10s) every 20s",
    ]
)


@given(st.lists(st.tuples(_ASKS, st.integers(0, 15)), min_size=1, max_size=6), st.floats(3, 10))
def test_a_restart_changes_nothing(asks: list[tuple[str, int]], cores: float) -> None:
    one, at = manager(horizon_s=60), NOW
    for number, (rdl, later) in enumerate(asks):
        at += later
        one.advance(at)
        with contextlib.suppress(Declined):
            one.create(entry(f"r-{number}", rdl), at)
    smaller = Bundle(cpu_cores=cores, memory_bytes=100 << 30)
    one.set_capacity(smaller, at)
    written = [msgspec.json.encode(to_keep(each, one.known(each.id), 1.0)) for each in one.owned()]

    other = manager(horizon_s=60)
    for text in written:
        other.restore(*from_record(msgspec.json.decode(text, type=ReservationRecord)))
    other.set_capacity(smaller, at)
    assert other.entries == one.entries
    for step in range(0, 90, 3):
        assert other.promised(at + step) == one.promised(at + step)
    for moment in (at + 7, at + 30):
        assert other.advance(moment) == one.advance(moment)
        for step in range(0, 90, 3):
            assert other.promised(moment + step) == one.promised(moment + step)
    assert other.set_capacity(CLUSTER, at + 30) == one.set_capacity(CLUSTER, at + 30)
    assert [each.sequence for each in other.agenda.reservations()] == [
        each.sequence for each in one.agenda.reservations()
    ]
    for step in range(30, 90, 3):
        assert other.promised(at + step) == one.promised(at + step)


def test_the_store_keeps_its_records(tmp_path: Path) -> None:
    one = manager()
    one.create(entry("r-1", "window(atom(b,4,4,20s,80),+10s,+30s)"), NOW)
    one.create(entry("r-2", "window(atom(b,4,4,20s,80),+10s,+30s)", "bob"), NOW)
    kept = [to_keep(each, one.kept(each.id), 1.0) for each in one.owned()]
    store = ReservationStore(Database(str(tmp_path / "master.db")))
    assert store.all(1.0) == []
    assert store.capacity() is None
    store.keep(kept, [])
    store.keep_capacity(CLUSTER)
    again = ReservationStore(Database(str(tmp_path / "master.db")))
    assert again.all(1.0) == kept
    assert again.capacity() == CLUSTER
    again.keep([], ["r-1"])
    again.keep_capacity(Bundle())
    assert [each.id for each in again.all(1.0)] == ["r-2"]
    assert again.capacity() == Bundle()
    with pytest.raises(StoreError, match=r"reservation_step_s: .* steps of 1 s"):
        again.all(2.0)


def test_nothing_new_is_promised_on_a_drained_node_however_far_ahead() -> None:
    one = manager()
    drained = Bundle(cpu_cores=6.0, memory_bytes=50 << 30)
    tomorrow = "window(atom(b,8,8,20s,160),+24h,+25h)"
    one.create(entry("before", tomorrow), NOW)
    assert one.set_capacity(CLUSTER, NOW, drained) == []
    before = one.agenda.plan.capacity.rows
    for wanted in ("window(atom(b,8,8,20s,160),+48h,+49h)", tomorrow):
        with pytest.raises(Declined, match="drained are not counted on"):
            one.create(entry("x", wanted), NOW)
    with pytest.raises(Declined, match=r"not counted on\); it keeps what it had"):
        one.update("before", "window(atom(b,8,8,20s,160),+24h,+26h)", NOW)
    one.create(entry("small", "window(atom(b,4,4,20s,80),+48h,+49h)"), NOW)
    assert one.agenda.plan.capacity.rows == before, "promises already go by the hour"
    assert [each.id for each in one.owned() if not each.dropped] == ["before", "small"]
    assert max(run.cpu_cores for run in free_runs(one, NOW)) == 4.0
    assert min(run.cpu_cores for run in free_runs(one, NOW)) == 0.0, "not less than nothing"
    assert one.set_capacity(CLUSTER, NOW + 60) == []
    one.create(entry("x", "window(atom(b,8,8,20s,160),+49h,+50h)"), NOW + 60)


def test_a_turn_of_a_recurring_reservation_is_planned_though_a_node_is_drained_far_ahead() -> None:
    one = manager()
    one.create(entry("nightly", "window(atom(b,8,8,20s,160),+24h,+25h) every 24h"), NOW)
    known = len(one.kept("nightly").turns)
    assert one.set_capacity(CLUSTER, NOW, Bundle(cpu_cores=6.0)) == []
    assert one.advance(NOW + 24 * 3600 - 3600) == [], "it was accepted before, and a drain ends in minutes"
    assert len(one.kept("nightly").turns) >= known
