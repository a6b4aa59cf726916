"""The four calls, as the master answers them on behalf of users."""

from __future__ import annotations

from typing import Any

import pytest

from master.reservations import calls
from master.reservations.calls import answer, may_use
from master.reservations.desk import Desk, DeskSettings
from master.reservations.rdl import Bundle
from penstock.wire import reservation_api as api
from penstock.wire.errors import ErrorCode, RpcError

NOW = 1_800_000_000.0
RDL = "window(atom(<1GB,1core>,2,2,20s,40),+10s,+30s)"


@pytest.fixture
def desk() -> Desk:
    one = Desk(DeskSettings(tenants={"ann": "research", "eve": "research"}))
    one.set_capacity(Bundle(cpu_cores=4.0, memory_bytes=8 << 30), NOW)
    return one


def ask(desk: Desk, call: str, user: str = "eve", *, operator: bool = False, **params: Any) -> Any:
    asked = api.OnBehalf(user=user, operator=operator, call=call, params=params)
    return answer(desk, asked, f"r-{len(desk.entries)}", NOW).answer


def error(desk: Desk, call: str, user: str = "eve", **params: Any) -> RpcError:
    with pytest.raises(RpcError) as said:
        ask(desk, call, user, **params)
    return said.value


def test_reserve_update_list_delete(desk: Desk) -> None:
    made = ask(desk, "reserve", rdl=RDL, name="nightly")
    assert (made.reservation, made.user, made.name, made.dropped) == ("r-0", "eve", "nightly", "")
    [piece] = made.promised
    assert (piece.start - NOW, piece.finish - NOW, piece.bundles, piece.cpu_cores) == (10, 30, 2, 1.0)
    changed = ask(desk, "update_reservation", reservation="r-0", rdl={"atom": [{"cpu_cores": 1.0}, 1, 1, 5, 5]})
    assert sum(piece.bundles * (piece.finish - piece.start) for piece in changed.promised) == 5
    assert changed.name == "nightly"
    ask(desk, "reserve", "bob", rdl=RDL)
    assert [one.reservation for one in ask(desk, "reservations").reservations] == ["r-0"]
    everybody = ask(desk, "reservations", "root", operator=True, everybody=True)
    assert [one.user for one in everybody.reservations] == ["eve", "bob"]
    assert ask(desk, "delete_reservation", reservation="r-0").reservations == []


def test_each_error_names_its_field(desk: Desk) -> None:
    ask(desk, "reserve", rdl=RDL)
    wrong = error(desk, "reserve", rdl="atom(")
    assert (wrong.code, wrong.body.field) == (ErrorCode.BAD_REQUEST, "rdl")
    no = error(desk, "reserve", rdl="window(atom(<1GB,9core>,1,1,5s,5),+0s,+10s)")
    assert no.code is ErrorCode.REFUSED
    assert "the cluster has 4" in str(no)
    unknown = error(desk, "delete_reservation", reservation="r-9")
    assert (unknown.code, unknown.body.field) == (ErrorCode.BAD_REQUEST, "reservation")
    assert error(desk, "update_reservation", reservation="r-9", rdl=RDL).body.field == "reservation"
    assert error(desk, "reserve").body.field == "rdl"


def test_what_is_anothers_is_left_alone(desk: Desk) -> None:
    ask(desk, "reserve", rdl=RDL)
    for call, more in (("delete_reservation", {}), ("update_reservation", {"rdl": RDL})):
        assert "belongs to eve" in str(error(desk, call, "bob", reservation="r-0", **more))
    assert "only operators" in str(error(desk, "reservations", everybody=True))
    assert ask(desk, "delete_reservation", "root", operator=True, reservation="r-0").reservations == []


def test_jobs_of_the_same_tenant_may_use_it(desk: Desk) -> None:
    ask(desk, "reserve", rdl=RDL)
    may_use(desk, "r-0", "eve")
    may_use(desk, "r-0", "ann")
    with pytest.raises(RpcError, match="belongs to eve"):
        may_use(desk, "r-0", "bob")
    with pytest.raises(RpcError, match="no reservation"):
        may_use(desk, "r-7", "eve")
    desk.set_capacity(Bundle(cpu_cores=1.0, memory_bytes=8 << 30), NOW)
    with pytest.raises(RpcError, match="was dropped"):
        may_use(desk, "r-0", "eve")
    [dropped] = ask(desk, "reservations").reservations
    assert (dropped.promised, bool(dropped.dropped)) == ([], True)


def test_one_user_cannot_fill_the_plan_with_trifles(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MOST_OF_A_USER", 1)
    ask(desk, "reserve", rdl=RDL)
    assert "delete some first" in str(error(desk, "reserve", rdl=RDL).body)
    ask(desk, "reserve", "bob", rdl=RDL)
