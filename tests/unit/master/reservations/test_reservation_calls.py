"""The four calls, as the master answers them on behalf of users."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from master.reservations import calls
from master.reservations.calls import answer, may_use
from master.reservations.rdl import Bundle
from master.reservations.reservation_manager import ManagerSettings, ReservationManager
from penstock.client.requests import Requests
from penstock.wire import reservation_api as api
from penstock.wire.connection import MAX_FRAME_BYTES
from penstock.wire.errors import ErrorCode, RpcError
from penstock.wire.method import Method, P, R

NOW = 1_800_000_000.0
RDL = "window(atom(<1GB,1core>,2,2,20s,40),+10s,+30s)"


@pytest.fixture
def manager() -> ReservationManager:
    one = ReservationManager(ManagerSettings(tenants={"ann": "research", "eve": "research"}))
    one.set_capacity(Bundle(cpu_cores=4.0, memory_bytes=8 << 30), NOW)
    return one


def ask(manager: ReservationManager, call: str, user: str = "eve", *, operator: bool = False, **params: Any) -> Any:
    asked = api.OnBehalf(user=user, operator=operator, call=call, params=params)
    return answer(manager, asked, f"r-{len(manager.entries)}", NOW).answer


def error(manager: ReservationManager, call: str, user: str = "eve", **params: Any) -> RpcError:
    with pytest.raises(RpcError) as said:
        ask(manager, call, user, **params)
    return said.value


def test_reserve_update_list_delete(manager: ReservationManager) -> None:
    made = ask(manager, "reserve", rdl=RDL, name="nightly")
    assert (made.reservation, made.user, made.name, made.dropped) == ("r-0", "eve", "nightly", "")
    [piece] = made.promised
    assert (piece.start - NOW, piece.finish - NOW, piece.bundles, piece.cpu_cores) == (10, 30, 2, 1.0)
    changed = ask(manager, "update_reservation", reservation="r-0", rdl={"atom": [{"cpu_cores": 1.0}, 1, 1, 5, 5]})
    assert sum(piece.bundles * (piece.finish - piece.start) for piece in changed.promised) == 5
    assert changed.name == "nightly"
    ask(manager, "reserve", "bob", rdl=RDL)
    assert [one.reservation for one in ask(manager, "reservations").reservations] == ["r-0"]
    everybody = ask(manager, "reservations", "root", operator=True, everybody=True)
    assert [one.user for one in everybody.reservations] == ["eve", "bob"]
    assert ask(manager, "delete_reservation", reservation="r-0").reservations == []


def test_each_error_names_its_field(manager: ReservationManager) -> None:
    ask(manager, "reserve", rdl=RDL)
    wrong = error(manager, "reserve", rdl="atom(")
    assert (wrong.code, wrong.body.field) == (ErrorCode.BAD_REQUEST, "rdl")
    no = error(manager, "reserve", rdl="window(atom(<1GB,9core>,1,1,5s,5),+0s,+10s)")
    assert no.code is ErrorCode.REFUSED
    assert "the cluster has 4" in str(no)
    unknown = error(manager, "delete_reservation", reservation="r-9")
    assert (unknown.code, unknown.body.field) == (ErrorCode.BAD_REQUEST, "reservation")
    assert error(manager, "update_reservation", reservation="r-9", rdl=RDL).body.field == "reservation"
    assert error(manager, "reserve").body.field == "rdl"


def test_a_reservation_of_another_user_is_left_alone(manager: ReservationManager) -> None:
    ask(manager, "reserve", rdl=RDL)
    for call, more in (("delete_reservation", {}), ("update_reservation", {"rdl": RDL})):
        assert "belongs to eve" in str(error(manager, call, "bob", reservation="r-0", **more))
    assert "only operators" in str(error(manager, "reservations", everybody=True))
    assert ask(manager, "delete_reservation", "root", operator=True, reservation="r-0").reservations == []


def test_jobs_of_the_same_tenant_may_use_it(manager: ReservationManager) -> None:
    ask(manager, "reserve", rdl=RDL)
    may_use(manager, "r-0", "eve")
    may_use(manager, "r-0", "ann")
    with pytest.raises(RpcError, match="belongs to eve"):
        may_use(manager, "r-0", "bob")
    with pytest.raises(RpcError, match="no reservation"):
        may_use(manager, "r-7", "eve")
    manager.set_capacity(Bundle(cpu_cores=1.0, memory_bytes=8 << 30), NOW)
    with pytest.raises(RpcError, match="was dropped"):
        may_use(manager, "r-0", "eve")
    [dropped] = ask(manager, "reservations").reservations
    assert (dropped.promised, bool(dropped.dropped)) == ([], True)


def test_one_user_cannot_fill_the_plan_with_trifles(
    manager: ReservationManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MOST_OF_A_USER", 1)
    ask(manager, "reserve", rdl=RDL)
    assert "delete some first" in str(error(manager, "reserve", rdl=RDL).body)
    ask(manager, "reserve", "bob", rdl=RDL)


class _Asks:
    """A client's connection to this manager, whose messages are as large as a client takes."""

    def __init__(self, manager: ReservationManager) -> None:
        self._manager = manager

    async def ask(self, method: Method[P, R], params: P) -> R:
        made = ask(self._manager, method.name, **msgspec.to_builtins(params))
        data = msgspec.msgpack.encode(made)
        assert len(data) < MAX_FRAME_BYTES
        return msgspec.msgpack.decode(data, type=method.result)

    async def ask_once(self, method: Method[P, R], params: P, lost: str) -> R:
        return await self.ask(method, params)

    async def pause(self, pause_s: float) -> None:
        raise AssertionError


def test_a_list_larger_than_a_message_is_sent_in_several(manager: ReservationManager) -> None:
    rdl = "atom(<0.01core>,1,1,1,1)"
    for number in range(100):
        made = ask(manager, "reserve", rdl=rdl, name=str(number)).reservation
        manager.entries[made] = replace(manager.entries[made], rdl=rdl + " " * 99_000)
    client, names = Requests(_Asks(manager)), [str(number) for number in range(100)]
    assert [one.name for one in asyncio.run(client.reservations())] == names
    then = NOW + 7 * 86_400 - 1
    found = asyncio.run(client.reservations_at(then))
    assert [one.name for one in found.reservations] == names
    assert found.free
    assert [one.name for one in asyncio.run(client.delete_reservation("r-0"))] == names[1:]


def test_a_reservation_of_many_pieces_is_sent_with_the_next_ones(manager: ReservationManager) -> None:
    made = ask(manager, "reserve", rdl="window(atom(<1core>,1,1,60s,60),+0s,+60s) every 30min")
    assert (len(made.promised), made.more) == (calls.MOST_PIECES, 336 - calls.MOST_PIECES)
    assert made.promised[0].start == NOW
    then = NOW + 300 * 1800
    [found] = ask(manager, "reservations", at=then).reservations
    assert (found.promised[0].start, len(found.promised), found.more) == (then, 36, 300)
