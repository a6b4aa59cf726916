"""Reservations of a running master: written down before they are answered, and kept over a restart."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from master.core import Cluster
from master.core import events as e
from master.core.instructions import SendDecisions
from master.reservation_service import ReservationService
from master.reservations.rdl import Bundle
from master.reservations.reservation_manager import ManagerSettings, ReservationManager
from master.store.database import Database, StoreError
from master.store.reservations import ReservationStore
from penstock.wire import master_api as api
from penstock.wire.errors import ErrorCode, RpcError
from penstock.wire.reservation_api import OnBehalf
from tests.unit.master.cluster_bed import Bed, bed, load

RDL = "window(atom(<1GB,1core>,2,2,20s,40),+1h,+2h)"


class Broken(ReservationStore):
    """Takes nothing while ``broken`` is set."""

    broken = False

    def keep(self, *changes: Any) -> None:
        if self.broken:
            raise StoreError("store: the disk is full")
        super().keep(*changes)


@asynccontextmanager
async def reservation_service(
    path: Path, cluster: Cluster, wake: Callable[[], object] = lambda: None, **settings: Any
) -> AsyncIterator[ReservationService]:
    ids = iter(range(1000))
    store, manager = Broken(Database(str(path))), ReservationManager(ManagerSettings(**settings))
    fresh = f"r{time.monotonic_ns()}"
    one = ReservationService(manager, store, cluster, lead_s=2.0, fresh_id=lambda: f"{fresh}-{next(ids)}", wake=wake)
    await one.start()
    try:
        yield one
    finally:
        await one.close()


def gathered(one: ReservationService) -> None:
    """Nodes have had their time to come back: those that are away count no more."""
    one._gathered_at, one._expected = 0.0, Bundle()


def break_store(one: ReservationService, *, broken: bool = True) -> None:
    assert isinstance(one._store, Broken)
    one._store.broken = broken


def reasons_sent(instructions: Iterable[object]) -> list[api.TellWaiting]:
    said = [decision for each in instructions if isinstance(each, SendDecisions) for decision in each.decisions]
    return [decision for decision in said if isinstance(decision, api.TellWaiting)]


async def ask(one: ReservationService, call: str, **params: Any) -> Any:
    return await one.call(OnBehalf(user="eve", operator=False, call=call, params=params))


def available(capacity: api.SlotAmounts) -> api.Availability:
    return api.Availability(slot_s=3.0, capacity=capacity, slots=[capacity])


def cluster() -> Bed:
    return bed("a", "b")  # of four cores and a thousand MB each


async def test_an_answered_request_is_there_after_a_restart(tmp_path: Path) -> None:
    woken: list[None] = []
    async with reservation_service(tmp_path / "db", cluster().cluster, lambda: woken.append(None)) as one:
        made = await ask(one, "reserve", rdl=RDL, name="nightly")
        other = await ask(one, "reserve", rdl=RDL)
        changed = await ask(one, "update_reservation", reservation=other.reservation, rdl=RDL.replace("2,2,", "1,2,"))
        gone = await ask(one, "reserve", rdl=RDL.replace("2,2,", "1,1,").replace(",40)", ",20)"))
        await ask(one, "delete_reservation", reservation=gone.reservation)
        assert woken
    nobody_yet = Bed()
    async with reservation_service(tmp_path / "db", nobody_yet.cluster) as again:
        assert (await ask(again, "reservations")).reservations == [made, changed]
        with pytest.raises(RpcError, match=r"room|has"):
            await ask(again, "reserve", rdl=RDL.replace("2,2,", "7,7,").replace(",40)", ",50000)"))
        await ask(again, "reserve", rdl=RDL)  # the nodes have had no time to come back, and are counted on


async def test_a_promise_that_cannot_be_stored_is_not_given(tmp_path: Path) -> None:
    async with reservation_service(tmp_path / "db", cluster().cluster) as one:
        made = await ask(one, "reserve", rdl=RDL)
        break_store(one)
        for call, params in (
            ("reserve", {"rdl": RDL}),
            ("update_reservation", {"rdl": RDL.replace("2,2,", "1,2,"), "reservation": made.reservation}),
            ("delete_reservation", {"reservation": made.reservation}),
        ):
            with pytest.raises(RpcError) as error:
                await ask(one, call, **params)
            assert error.value.code is ErrorCode.UNAVAILABLE
            assert (await ask(one, "reservations")).reservations == [made]
    async with reservation_service(tmp_path / "db", cluster().cluster) as again:
        assert (await ask(again, "reservations")).reservations == [made]


async def test_a_drained_node_takes_reservations_that_no_longer_fit_soon_and_leaves_the_rest(tmp_path: Path) -> None:
    b = cluster()
    async with reservation_service(tmp_path / "db", b.cluster) as one:
        soon = await ask(one, "reserve", rdl="window(atom(<1core>,6,6,20s,120),+0s,+20s)")
        later = await ask(one, "reserve", rdl="window(atom(<1core>,6,6,20s,120),+24h,+25h)")
        gathered(one)
        b.serve(e.DrainRequested(("b",), "root", 0.0))
        await one._look()
        found = {each.reservation: each.dropped for each in (await ask(one, "reservations")).reservations}
        assert "less than was promised" in found[soon.reservation]
        assert found[later.reservation] == ""


async def test_a_lost_node_takes_reservations_that_no_longer_fit_and_their_jobs_are_notified(tmp_path: Path) -> None:
    b = cluster()
    async with reservation_service(tmp_path / "db", b.cluster) as one:
        made = await ask(one, "reserve", rdl="window(atom(<1core>,6,6,20s,120),+0s,+20s)")
        b.job("a", "j", reservation=made.reservation)
        gathered(one)
        b.cluster.nodes.pop("b")
        await one._look()
        [told] = (await ask(one, "reservations")).reservations
        assert "less than was promised" in told.dropped
        out = b.cluster.handle(e.RoundDue(time.time()), b.now)
        waiting = reasons_sent(out)
        assert [decision.job for decision in waiting] == ["j"]
        assert "was dropped" in waiting[0].why
    async with reservation_service(tmp_path / "db", b.cluster) as again:
        [told_again] = (await ask(again, "reservations")).reservations
        assert told_again == told, "until its owner has seen it"


async def test_a_node_that_was_silent_for_a_while_leaves_the_promises_of_three_days_ahead(tmp_path: Path) -> None:
    b = cluster()
    async with reservation_service(tmp_path / "db", b.cluster) as one:
        made = await ask(one, "reserve", rdl="window(atom(<1core>,6,6,20s,120),+72h,+73h)")
        gathered(one)
        lost = b.cluster.nodes.pop("b")
        assert (await ask(one, "reservations")).reservations == [made]
        with pytest.raises(RpcError, match="nodes that are lost are not counted on"):
            await ask(one, "reserve", rdl="window(atom(<1core>,6,6,20s,120),+48h,+49h)")
    async with reservation_service(tmp_path / "db", b.cluster) as again:
        assert (await ask(again, "reservations")).reservations == [made]
        b.cluster.nodes["b"] = lost
        assert (await ask(again, "reservations")).reservations == [made]


async def test_a_dropped_reservation_is_given_back_with_the_node_though_the_master_began_anew(tmp_path: Path) -> None:
    b = cluster()
    async with reservation_service(tmp_path / "db", b.cluster) as one:
        made = await ask(one, "reserve", rdl="window(atom(<1core>,6,6,20s,120),+10min,+11min)", name="soon")
        b.job("a", "j", reservation=made.reservation)
        gathered(one)
        lost = b.cluster.nodes.pop("b")
        [told] = (await ask(one, "reservations")).reservations
        assert told.dropped
        break_store(one)
        with pytest.raises(RpcError, match="nothing has changed"):
            await ask(one, "delete_reservation", reservation=made.reservation)
    async with reservation_service(tmp_path / "db", b.cluster) as again:
        assert (await ask(again, "reservations")).reservations == [told]
        b.cluster.nodes["b"] = lost
        assert (await ask(again, "reservations")).reservations == [made], "at the very times that were promised"
        out = b.cluster.handle(e.RoundDue(time.time()), b.now)
        assert any("promised again" in each.why for each in reasons_sent(out))
    async with reservation_service(tmp_path / "db", b.cluster) as third:
        assert (await ask(third, "reservations")).reservations == [made]


async def test_a_user_s_past_use_counts_in_the_window_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    quota: dict[str, Any] = {"most_over_time": 0.5, "window_s": 1000.0}
    half = "window(atom(<1core>,8,8,250s,2000),+0s,+250s)"
    async with reservation_service(tmp_path / "db", cluster().cluster, **quota) as one:
        await ask(one, "reserve", rdl=half)
        now += 250.0
        second = await ask(one, "reserve", rdl=half)
        break_store(one)
        now += 100.0
        with pytest.raises(RpcError, match="nothing has changed"):
            await ask(one, "delete_reservation", reservation=second.reservation)
        break_store(one, broken=False)
        await ask(one, "delete_reservation", reservation=second.reservation)
    async with reservation_service(tmp_path / "db", cluster().cluster, **quota) as again:
        with pytest.raises(RpcError, match=r"eve would have 60\.0% of the cpu"):
            await ask(again, "reserve", rdl=half)
        await ask(again, "reserve", rdl=half.replace("250", "150").replace("2000", "1200"))
        now += 5000.0
    async with reservation_service(tmp_path / "db", cluster().cluster, **quota) as third:
        await ask(third, "reserve", rdl=half.replace("250", "500").replace("2000", "4000"))
        await third._look()
        assert third._store.past() == {}


async def test_a_record_that_could_not_be_stored_is_stored_with_the_next_look(tmp_path: Path) -> None:
    b = cluster()
    async with reservation_service(tmp_path / "db", b.cluster) as one:
        await ask(one, "reserve", rdl="window(atom(<1core>,6,6,1h,6h),+0s,+1h)")
        gathered(one)
        break_store(one)
        b.cluster.nodes.pop("b")
        [told] = (await ask(one, "reservations")).reservations
        assert told.dropped
        break_store(one, broken=False)
        await one._look()
    async with reservation_service(tmp_path / "db", b.cluster) as again:
        assert (await ask(again, "reservations")).reservations == [told]


async def test_disk_and_network_that_agents_report_can_be_promised(tmp_path: Path) -> None:
    b = Bed()
    for name in ("a", "b"):  # 100 MiB/s of disks and 125 MB/s of the link each, as agents report them
        b.node(name, load=load(availability=available((4000, 102_400, 125_000_000 // 1024, 953))))
    async with reservation_service(tmp_path / "db", b.cluster) as one:
        made = await ask(one, "reserve", rdl="atom(<1core,100MiB/s disk,125MB/s network>,2,2,20s,40)")
        [piece] = made.promised
        assert (piece.disk_bytes_per_s, piece.network_bytes_per_s) == (100 << 20, 125_000_000)
        for wanted in ("300MiB/s disk", "300MB/s network"):
            with pytest.raises(RpcError, match=f"{wanted.split()[1]}.*the cluster has") as no:
                await ask(one, "reserve", rdl=f"atom(<{wanted}>,1,1,20s,20)")
            assert no.value.code is ErrorCode.REFUSED
            assert "not known" not in str(no.value)
        one._gathered_at = 0.0
        b.serve(e.DrainRequested(("b",), "root", 0.0))
        with pytest.raises(RpcError, match="drained"):
            await ask(one, "reserve", rdl="window(atom(<100MiB/s disk>,2,2,20s,40),+24h,+25h)")


async def test_an_unknown_rate_of_a_node_is_named_with_the_remedy(tmp_path: Path) -> None:
    b = Bed()
    b.node("a", load=load(availability=available((4000, 102_400, 0, 953))))
    b.node("b")  # reports no rate
    async with reservation_service(tmp_path / "db", b.cluster) as one:
        await ask(one, "reserve", rdl="atom(<50MB/s disk>,1,1,20s,20)")
        with pytest.raises(
            RpcError, match="the rate of the link is not known of the nodes a, b; set network_link_bytes"
        ):
            await ask(one, "reserve", rdl="atom(<50MB/s network>,1,1,20s,20)")
        with pytest.raises(RpcError, match="the rate of the disks is not known of the nodes b; set disk_bytes_per_s"):
            await ask(one, "reserve", rdl="window(atom(<50MB/s disk>,3,3,20s,60),+1h,+2h)")
        with pytest.raises(RpcError) as no:
            await ask(one, "reserve", rdl="atom(<9core>,1,1,20s,20)")
        assert "not known" not in str(no.value)


@pytest.mark.parametrize(("now_s", "pause_s"), [(7.0, 1.0), (7.2, 0.8), (7.7, 0.3), (7.95, 1.0)])
async def test_the_plan_is_updated_at_least_each_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now_s: float, pause_s: float
) -> None:
    async with reservation_service(tmp_path / "store", cluster().cluster) as one:
        await ask(one, "reserve", rdl=RDL)
        monkeypatch.setattr("master.reservation_service.time.monotonic", lambda: now_s)
        assert one._until_next_s() == pytest.approx(pause_s)
        monkeypatch.undo()


async def test_where_nothing_is_reserved_the_plan_is_seldom_updated_until_something_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("master.reservation_service._LOOK_IDLE_S", 1e6)
    async with reservation_service(tmp_path / "store", cluster().cluster) as one:
        assert one._until_next_s() > 1.0
        updated = asyncio.Event()
        monkeypatch.setattr(one, "_look", updated_by(one._look, updated))
        await ask(one, "reserve", rdl=RDL)
        async with asyncio.timeout(60.0):  # far less than what it would have waited
            await updated.wait()
        assert one._until_next_s() <= 1.0


def updated_by(look: Callable[[], Awaitable[None]], updated: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def looking() -> None:
        await look()
        updated.set()

    return looking
