"""Reservations over HTTP: everybody who may see the status may see what is promised; who has the token may change it.

``GET /reservations`` (``?at=`` Unix time: what is promised then), ``POST /reservations``, ``PUT`` and ``DELETE
/reservations/ID``. Changes need ``Authorization: Bearer …`` with what is in the file ``http_token_file``; whoever has
that acts as an operator, on behalf of the ``user`` that he names.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from master.reservations.calls import show
from master.reservations.desk import Desk
from penstock.wire.agent_api import Result
from penstock.wire.errors import ErrorCode, RpcError
from penstock.wire.reservation_api import Label, OnBehalf, Rdl

Call = Callable[[OnBehalf], Awaitable[Result]]
_STATUS = {ErrorCode.BAD_REQUEST: 400, ErrorCode.REFUSED: 409, ErrorCode.UNAVAILABLE: 503}
#: Runs of the plan in which nothing changes; so many are shown.
_MOST_RUNS = 1000


class _Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a change."""

    rdl: Rdl
    user: str = ""
    name: Label = ""


class ReservationSite:
    """The routes; ``desk`` and ``call`` are the master's (None: it takes no reservations)."""

    def __init__(self, desk: Callable[[], Desk | None], call: Call, token_file: Path | None) -> None:
        self._desk = desk
        self._call = call
        self._token_file = token_file

    def routes(self) -> list[web.RouteDef]:
        """For the master's site."""
        return [
            web.get("/reservations", self._get),
            web.post("/reservations", self._post),
            web.put("/reservations/{id}", self._put),
            web.delete("/reservations/{id}", self._delete),
        ]

    async def _get(self, request: web.Request) -> web.Response:
        desk = self._desk()
        if desk is None:
            return _error(503, "this master takes no reservations; see its log: its store could not be opened")
        try:
            at = float(request.query.get("at", time.time()))
            promised = desk.promised(at)
        except (ValueError, OverflowError):
            return _error(400, "at: not a time; write seconds of Unix time", "at")
        return _json(
            {
                "at": at,
                "promised": {
                    one: dict(zip(_AMOUNTS, promise.amounts, strict=True)) | {"bundles": promise.bundles}
                    for one, promise in promised.items()
                },
                "free": _runs(desk, at),
                "reservations": [msgspec.to_builtins(show(desk, entry.id)) for entry in desk.owned()],
            }
        )

    async def _post(self, request: web.Request) -> web.Response:
        return await self._change(request, "reserve", 201)

    async def _put(self, request: web.Request) -> web.Response:
        return await self._change(request, "update_reservation", 200)

    async def _delete(self, request: web.Request) -> web.Response:
        refused = self._refused(request)
        if refused is not None:
            return refused
        asked = {"reservation": request.match_info["id"]}
        return await self._answer(OnBehalf(user="", operator=True, call="delete_reservation", params=asked), 200)

    async def _change(self, request: web.Request, call: str, status: int) -> web.Response:
        refused = self._refused(request)
        if refused is not None:
            return refused
        try:
            asked = msgspec.json.decode(await request.read(), type=_Asked)
        except msgspec.MsgspecError as error:
            return _error(400, f"{error}; send JSON such as {{'user': 'eve', 'rdl': 'atom(<1core>,1,1,5min,1h)'}}")
        params: dict[str, Any] = {"rdl": asked.rdl}
        if call == "reserve":
            if not asked.user:
                return _error(400, "user: who is it for?", "user")
            params["name"] = asked.name
        else:
            params["reservation"] = request.match_info["id"]
        return await self._answer(OnBehalf(user=asked.user, operator=True, call=call, params=params), status)

    async def _answer(self, asked: OnBehalf, status: int) -> web.Response:
        try:
            return _json(await self._call(asked), status)
        except RpcError as error:
            return _error(_STATUS.get(error.code, 500), str(error), error.body.field)

    def _refused(self, request: web.Request) -> web.Response | None:
        """Why somebody may not change anything."""
        if self._token_file is None:
            return _error(403, "no reservations by HTTP here; set http_token_file, or use `penstock reserve`")
        try:
            token = self._token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            return _error(503, f"http_token_file: {getattr(error, 'strerror', None) or 'not text'}")
        said = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not token or not hmac.compare_digest(said.encode(), token.encode()):
            return _error(401, "the header `Authorization: Bearer TOKEN` with the token of http_token_file is needed")
        return None


_AMOUNTS = ("cpu_cores", "disk_bytes_per_s", "network_bytes_per_s", "memory_bytes")


def _runs(desk: Desk, since: float) -> list[dict[str, float | None]]:
    """What is not promised, from then on; the last run has no end."""
    first, found = desk.step(since), []
    for start, finish, row in desk.agenda.plan.free.runs():
        if finish is not None and finish <= first:
            continue
        end = None if finish is None else desk.unix(finish)
        found.append({"start": desk.unix(max(start, first)), "finish": end} | dict(zip(_AMOUNTS, row, strict=True)))
        if len(found) == _MOST_RUNS:
            break
    return found


def _json(said: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(said), content_type="application/json", status=status)


def _error(status: int, why: str, field: str = "") -> web.Response:
    return _json({"error": why} | ({"field": field} if field else {}), status)
