"""Reservations over HTTP: every client with access to the status can read them; the token is required to change them.

``GET /reservations`` (``?at=`` Unix time: the promises then), ``GET /plan`` (over time, ``?since=&until=&by=``), ``POST
/reservations``, ``PUT`` and ``DELETE /reservations/ID``. Changes need ``Authorization: Bearer …`` with the content of
the file ``http_token_file`` (:mod:`penstock.security.http_access` checks it); a client with that token acts as an
operator, on behalf of the named ``user``.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from aiohttp import web
from msgspec import UNSET

from master import http_documents as documents
from master.reservations.calls import show
from master.reservations.reservation_manager import ReservationManager
from master.reservations.timeline import free_runs, stacked
from penstock import openapi
from penstock.openapi import Operation, Refused
from penstock.wire.agent_api import Result
from penstock.wire.errors import ErrorCode, RpcError
from penstock.wire.reservation_api import OnBehalf, ReservationId, Reservations, Reserved

Call = Callable[[OnBehalf], Awaitable[Result]]
_STATUS = {ErrorCode.BAD_REQUEST: 400, ErrorCode.REFUSED: 409, ErrorCode.UNAVAILABLE: 503}
#: Default time span of `GET /plan`.
_AHEAD_S = 86_400.0
_AWAY = "this master takes no reservations; see its log: its store could not be opened"
_NONE = "No reservation has this id."
_EXAMPLE_INSTEAD = "{'rdl': 'atom(<1core>,1,1,5min,1h)'}"
_EXAMPLE = "{'user': 'eve', 'rdl': 'atom(<1core>,1,1,5min,1h)'}"


class ReservationSite:
    """The routes; ``manager`` and ``call`` are the master's (None: it takes no reservations)."""

    def __init__(self, manager: Callable[[], ReservationManager | None], call: Call) -> None:
        self._manager = manager
        self._call = call

    def routes(self) -> list[Operation]:
        """Return the operations for the master's site."""
        away = {503: "The store is not available."}
        one = {"id": ReservationId}
        return [
            Operation(
                path="/reservations",
                handler=self._get,
                summary="All reservations, and the promised and free capacity at a time.",
                page="reservations.md",
                query=documents.ReservationsQuery,
                answer=documents.ReservationsThen,
                faults=away,
            ),
            Operation(
                path="/plan",
                handler=self._plan,
                summary="The promised capacity over time, by user or by reservation.",
                query=documents.PlanQuery,
                answer=documents.Plan,
                faults=away,
            ),
            Operation(
                method="POST",
                path="/reservations",
                handler=self._post,
                summary="Make a reservation (createRes, Rayon §5.1).",
                body=documents.Ask,
                answer=Reserved,
                status=201,
                faults=away | {409: "It cannot be promised."},
            ),
            Operation(
                method="PUT",
                path="/reservations/{id}",
                handler=self._put,
                summary="Change a reservation (updateRes); a change that cannot be promised leaves it as it was.",
                parameters=one,
                body=documents.AskInstead,
                answer=Reserved,
                faults=away | {404: _NONE, 409: "It cannot be promised, or was dropped."},
            ),
            Operation(
                method="DELETE",
                path="/reservations/{id}",
                handler=self._delete,
                summary="Delete a reservation (deleteRes); its jobs go on as any others.",
                parameters=one,
                answer=Reservations,
                faults=away | {404: _NONE},
            ),
        ]

    async def _get(self, request: web.Request, query: documents.ReservationsQuery) -> web.Response:
        manager = self._present()
        at = time.time() if query.at is UNSET else query.at
        promised = manager.promised(at)
        amounts = {one: {**promise.amounts._asdict(), "bundles": promise.bundles} for one, promise in promised.items()}
        reservations = [show(manager, entry.id, at) for entry in manager.owned()]
        free = free_runs(manager, at)
        return openapi.json(documents.ReservationsThen(at=at, promised=amounts, free=free, reservations=reservations))

    async def _plan(self, request: web.Request, query: documents.PlanQuery) -> web.Response:
        manager = self._present()
        since = time.time() if query.since is UNSET else query.since
        until = since + _AHEAD_S if query.until is UNSET else query.until
        if until <= since:
            raise Refused(400, "until: not after since", "until")
        return openapi.json(stacked(manager, since, until, by=query.by))

    async def _post(self, request: web.Request) -> web.Response:
        asked = await openapi.read_body(request, documents.Ask, _EXAMPLE)
        params = {"rdl": asked.rdl, "name": asked.name}
        return await self._answer(OnBehalf(user=asked.user, operator=True, call="reserve", params=params), 201)

    async def _put(self, request: web.Request) -> web.Response:
        asked = await openapi.read_body(request, documents.AskInstead, _EXAMPLE_INSTEAD)
        params = {"rdl": asked.rdl, "reservation": self._known(request)}
        return await self._answer(OnBehalf(user="", operator=True, call="update_reservation", params=params))

    async def _delete(self, request: web.Request) -> web.Response:
        params = {"reservation": self._known(request)}
        return await self._answer(OnBehalf(user="", operator=True, call="delete_reservation", params=params))

    async def _answer(self, asked: OnBehalf, status: int = 200) -> web.Response:
        try:
            return openapi.json(await self._call(asked), status)
        except RpcError as error:
            raise Refused(_STATUS.get(error.code, 500), str(error), error.body.field or "") from None

    def _present(self) -> ReservationManager:
        """Raises Refused: this master takes no reservations."""
        manager = self._manager()
        if manager is None:
            raise Refused(503, _AWAY)
        return manager

    def _known(self, request: web.Request) -> str:
        """Return the id in the address. Raises Refused: no reservation has it."""
        named = request.match_info["id"]
        if named not in self._present().entries:
            raise Refused(404, f"there is no reservation {named[:128]!r}; /reservations lists them", "id")
        return named
