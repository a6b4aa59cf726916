"""Reservations over HTTP: everybody who may see the status may see what is promised; who has the token may change it.

``GET /reservations`` (``?at=`` Unix time: what is promised then), ``GET /plan`` (over time, ``?since=&until=&by=``),
``POST /reservations``, ``PUT`` and ``DELETE /reservations/ID``. Changes need ``Authorization: Bearer …`` with what is
in the file ``http_token_file``; whoever has that acts as an operator, on behalf of the ``user`` that he names.
"""

from __future__ import annotations

import hmac
import math
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from master.reservations.calls import show
from master.reservations.desk import Desk
from master.reservations.timeline import AMOUNTS, free_runs, stacked
from penstock.wire.agent_api import Result
from penstock.wire.errors import ErrorCode, RpcError
from penstock.wire.reservation_api import Label, OnBehalf, Rdl

Call = Callable[[OnBehalf], Awaitable[Result]]
_STATUS = {ErrorCode.BAD_REQUEST: 400, ErrorCode.REFUSED: 409, ErrorCode.UNAVAILABLE: 503}
#: `GET /plan` shows so much of the time ahead where nobody says how much.
_AHEAD_S = 86_400.0
#: No later time is meant: the year 9999.
_LAST = 253_402_300_800.0
_AWAY = "this master takes no reservations; see its log: its store could not be opened"


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
            web.get("/plan", self._plan),
            web.post("/reservations", self._post),
            web.put("/reservations/{id}", self._put),
            web.delete("/reservations/{id}", self._delete),
        ]

    async def _get(self, request: web.Request) -> web.Response:
        desk = self._desk()
        if desk is None:
            return _error(503, _AWAY)
        try:
            at = _time(request, "at", time.time())
        except ValueError as error:
            return _error(400, str(error), "at")
        promised = desk.promised(at)
        return _json(
            {
                "at": at,
                "promised": {
                    one: dict(zip(AMOUNTS, promise.amounts, strict=True)) | {"bundles": promise.bundles}
                    for one, promise in promised.items()
                },
                "free": free_runs(desk, at),
                "reservations": [msgspec.to_builtins(show(desk, entry.id, at)) for entry in desk.owned()],
            }
        )

    async def _plan(self, request: web.Request) -> web.Response:
        desk = self._desk()
        if desk is None:
            return _error(503, _AWAY)
        try:
            since = _time(request, "since", time.time())
            until = _time(request, "until", since + _AHEAD_S)
        except ValueError as error:
            return _error(400, str(error), str(error).partition(":")[0])
        by = request.query.get("by", "user")
        if by not in {"user", "reservation"}:
            return _error(400, "by: write user or reservation", "by")
        if until <= since:
            return _error(400, "until: not after since", "until")
        return _json(stacked(desk, since, until, by=by))

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


def _time(request: web.Request, field: str, default: float) -> float:
    """Raises ValueError: one line that names the field."""
    said = request.query.get(field)
    try:
        at = default if said is None else float(said)
    except ValueError:
        at = math.nan
    if not 0 <= at < _LAST:
        raise ValueError(f"{field}: not a time; write seconds of Unix time")
    return at


def _json(said: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(said), content_type="application/json", status=status)


def _error(status: int, why: str, field: str = "") -> web.Response:
    return _json({"error": why} | ({"field": field} if field else {}), status)
