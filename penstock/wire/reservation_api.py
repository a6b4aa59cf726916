"""Reservations: what frameworks ask of their host's agent, and what the agent relays to the master (Rayon §5.1).

The agent answers for who asks: it adds the user that its kernel vouches for, and ``operator`` where that user may act
on what belongs to others.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from penstock.wire.agent_api import Params, Result

#: An expression of RDL, as text or as the JSON form (docs/reservations.md). Relative times count from now.
Rdl = str | dict[str, Any]
ReservationId = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
#: Of a message with values of any type: a megabyte of empty arrays takes a third of a second to parse.
_MOST_BYTES = 128 * 1024
Label = Annotated[str, msgspec.Meta(max_length=128)]


class PromisedPiece(Result, frozen=True):
    """So many bundles from ``start`` to ``finish`` (Unix time)."""

    start: float
    finish: float
    bundles: int
    cpu_cores: float = 0.0
    memory_bytes: int = 0
    disk_bytes_per_s: int = 0
    network_bytes_per_s: int = 0


class Reserved(Result, frozen=True):
    """A reservation as it stands: what is promised, of one that recurs as far as is planned. ``dropped`` says why it
    can be kept no longer; then nothing is promised. ``launch_delay_s``: bundles as large as its largest waited so long
    for their place of late; room for them is made at least so long before its time."""

    reservation: str
    user: str
    rdl: Rdl
    created_at: float
    name: str = ""
    dropped: str = ""
    promised: list[PromisedPiece] = []
    launch_delay_s: float = 0.0


class FreeRun(Result, frozen=True):
    """What nobody is promised from ``start`` to ``finish`` (Unix time; None: for ever)."""

    start: float
    finish: float | None
    cpu_cores: float
    memory_bytes: float
    disk_bytes_per_s: float = 0.0
    network_bytes_per_s: float = 0.0


class Reserve(Params, frozen=True):
    """Promise me this (createRes): answered at once, with what is promised or with the error ``refused``, which says
    why not. ``name`` is for people."""

    MOST_BYTES: ClassVar[int] = _MOST_BYTES
    rdl: Rdl
    name: Label = ""


class UpdateReservation(Params, frozen=True):
    """Promise me this instead (updateRes). Where that cannot be, the answer is ``refused`` and it stays as it was."""

    MOST_BYTES: ClassVar[int] = _MOST_BYTES
    reservation: ReservationId
    rdl: Rdl


class DeleteReservation(Params, frozen=True):
    """I do not need it any more (deleteRes); its jobs go on as any others."""

    reservation: ReservationId


class ListReservations(Params, frozen=True):
    """Which are there (listRes): my own; for operators with ``everybody`` all of them. With ``at`` (Unix time) only
    those that are promised something then, and what is free from then on."""

    everybody: bool = False
    at: Annotated[float, msgspec.Meta(ge=0, lt=253_402_300_800)] | None = None


class Reservations(Result, frozen=True):
    """In the order in which they came. ``free``, where ``at`` was asked for: run by run, at most a thousand."""

    reservations: list[Reserved]
    free: list[FreeRun] = []


class UseReservation(Params, frozen=True):
    """A job that is being registered wants to be one of this reservation; the answer tells what that is promised."""

    reservation: ReservationId


class OnBehalf(Params, frozen=True):
    """To the master: one of :data:`CALLS`, and who makes it."""

    MOST_BYTES: ClassVar[int] = 2 * 1024 * 1024  # 10,000 names of nodes
    user: str
    operator: bool
    call: str
    params: dict[str, Any] = {}


#: framework → agent
REQUESTS: dict[str, tuple[type[Params], type[Result]]] = {
    "reserve": (Reserve, Reserved),
    "update_reservation": (UpdateReservation, Reserved),
    "delete_reservation": (DeleteReservation, Reservations),
    "reservations": (ListReservations, Reservations),
}

#: agent → master, in ``OnBehalf``
CALLS: dict[str, tuple[type[Params], type[Result]]] = {**REQUESTS, "use_reservation": (UseReservation, Reserved)}
