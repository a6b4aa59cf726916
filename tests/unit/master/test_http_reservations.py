"""Reservations over HTTP: the users who may look, those who may change, and the answer to each mistake."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from master.http_reservations import ReservationSite
from master.reservations.calls import answer
from master.reservations.rdl import Bundle
from master.reservations.reservation_manager import ManagerSettings, ReservationManager
from penstock.security.http_access import HttpAccess
from penstock.wire.agent_api import Result
from penstock.wire.reservation_api import OnBehalf

RDL = "window(atom(<1GB,1core>,2,2,20s,40),+1h,+2h)"


class Served:
    """A manager behind the site, and a client."""

    def __init__(self, base: str, manager: ReservationManager, client: aiohttp.ClientSession) -> None:
        self.base, self.manager, self._client = base, manager, client

    async def ask(
        self, method: str, path: str = "", token: str | None = "secret", scheme: str = "Bearer", **more: Any
    ) -> tuple[int, Any]:
        headers = {} if token is None else {"Authorization": f"{scheme} {token}"}
        async with self._client.request(method, f"{self.base}{path}", headers=headers, **more) as response:
            return response.status, await response.json()


@asynccontextmanager
async def served(token_file: Path | None, *, away: bool = False) -> AsyncIterator[Served]:
    manager = ReservationManager(ManagerSettings())
    manager.set_capacity(Bundle(cpu_cores=4.0, memory_bytes=8 << 30), time.time())

    async def call(asked: OnBehalf) -> Result:
        return answer(manager, asked, f"r-{len(manager.entries)}", time.time()).answer

    app = web.Application(middlewares=[HttpAccess(exposed=False, operator=token_file).check])
    app.add_routes(ReservationSite(lambda: None if away else manager, call).routes())
    async with TestServer(app) as server, aiohttp.ClientSession() as client:
        yield Served(str(server.make_url("/reservations")), manager, client)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("secret\n")
    return path


async def test_create_look_change_delete(token_file: Path) -> None:
    async with served(token_file) as site:
        status, made = await site.ask("POST", json={"user": "eve", "rdl": RDL, "name": "nightly"})
        assert (status, made["user"], made["name"]) == (201, "eve", "nightly")
        [piece] = made["promised"]
        _, seen = await site.ask("GET", f"?at={piece['start']}", token=None)
        assert seen["promised"]["r-0"] == {
            "bundles": 2, "cpu_cores": 2.0, "memory_bytes": 2e9, "disk_bytes_per_s": 0, "network_bytes_per_s": 0,
        }  # fmt: skip
        assert seen["reservations"] == [made]
        assert seen["free"][0]["cpu_cores"] == 2.0
        assert seen["free"][0]["finish"] == piece["finish"]
        assert seen["free"][-1]["finish"] is None
        status, changed = await site.ask("PUT", "/r-0", json={"rdl": {"atom": [{"cpu_cores": 1.0}, 1, 1, 5, 5]}})
        assert (status, changed["user"]) == (200, "eve")
        assert await site.ask("DELETE", "/r-0") == (200, {"reservations": [], "free": [], "more": False})
        assert (await site.ask("GET", token=None))[1]["reservations"] == []


async def test_each_mistake_gets_a_line(token_file: Path) -> None:
    async with served(token_file) as site:
        for method, path, more, status, said in (
            ("POST", "", {"json": {"rdl": RDL}}, 400, "user"),
            ("POST", "", {"json": {"user": "eve"}}, 400, "rdl"),
            ("POST", "", {"data": b"\xff"}, 400, "JSON"),
            ("POST", "", {"json": {"user": "eve", "rdl": "atom("}}, 400, "expected"),
            ("POST", "", {"json": {"user": "eve", "rdl": RDL.replace("1core", "9core")}}, 409, "the cluster has 4"),
            ("PUT", "/r-9", {"json": {"rdl": RDL}}, 404, "no reservation"),
            ("DELETE", "/r-9", {}, 404, "no reservation"),
            ("GET", "?at=soon", {}, 400, "Unix time"),
            ("GET", "?at=nan", {}, 400, "Unix time"),
            ("GET", "?at=1e999", {}, 400, "Unix time"),
        ):
            found, answer_ = await site.ask(method, path, **more)
            assert (found, said in answer_["error"]) == (status, True), (method, path, answer_)
        assert site.manager.owned() == []


async def test_the_plan_over_time(token_file: Path) -> None:
    async with served(token_file) as site:
        site.base = site.base.replace("/reservations", "/plan")
        status, empty = await site.ask("GET", token=None)
        assert (status, len(empty["times"]), empty["promised"]) == (200, 1, {})
        assert empty["until"] - empty["times"][0] == pytest.approx(86_400.0, abs=1.0)
        await site.ask("POST", "/../reservations", json={"user": "eve", "rdl": RDL})
        _, said = await site.ask("GET", token=None)
        assert list(said["promised"]) == ["eve"]
        assert max(said["promised"]["eve"]["cpu_cores"]) == 2.0
        assert said["capacity"]["cpu_cores"] == [4.0] * len(said["times"])
        since = said["times"][1]
        _, later = await site.ask("GET", f"?since={since}&until={since + 5}&by=reservation", token=None)
        assert (later["times"], later["until"], list(later["promised"])) == ([since], since + 5, ["r-0"])
        for query, field in (
            ("?since=noon", "since"), ("?until=nan", "until"), ("?since=9&until=9", "until"), ("?by=node", "by"),
            ("?since=-1", "since"), ("?until=1e300", "until"),
        ):  # fmt: skip
            status, wrong = await site.ask("GET", query, token=None)
            assert (status, wrong["field"]) == (400, field)
            assert wrong["error"].startswith(f"{field}: ")
    async with served(token_file, away=True) as site:
        assert (await site.ask("GET", "/../plan", token=None))[0] == 503


async def test_a_client_without_a_token_changes_nothing(token_file: Path, tmp_path: Path) -> None:
    changes = (("POST", ""), ("PUT", "/r-0"), ("DELETE", "/r-0"))
    asked = {"json": {"user": "eve", "rdl": RDL}}
    async with served(token_file) as site:
        for method, path in changes:
            for token in (None, "", "wrong"):
                assert (await site.ask(method, path, token=token, **asked))[0] == 401
        assert (await site.ask("DELETE", "/r-0", scheme="bearer"))[0] == 404, "permitted: schemes have no case"
        token_file.write_text("")
        assert (await site.ask("POST", token="", **asked))[0] == 401, "an empty file is no token"
        token_file.unlink()
        assert (await site.ask("POST", **asked))[0] == 401
        assert site.manager.owned() == []
    async with served(None) as site:
        for method, path in changes:
            status, said = await site.ask(method, path, **asked)
            assert (status, "http_token_file" in said["error"]) == (403, True)


async def test_a_master_that_takes_none_reports_so(token_file: Path) -> None:
    async with served(token_file, away=True) as site:
        assert (await site.ask("GET"))[0] == 503
