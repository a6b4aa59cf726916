"""Reservations (Rayon §5.1): requests of frameworks to the master (:mod:`penstock.wire.relayed_methods`)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from penstock.wire.agent_api import Params, Result

#: An expression of RDL, as text or in JSON form (docs/reservations.md). Relative times count from now.
Rdl = str | dict[str, Any]
ReservationId = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
#: Limit of a message with untyped values: a megabyte of empty arrays takes a third of a second to parse.
_MOST_BYTES = 128 * 1024
Label = Annotated[str, msgspec.Meta(max_length=128)]


class PromisedPiece(Result, frozen=True):
    """A number of bundles from ``start`` to ``finish`` (Unix time)."""

    start: float
    finish: float
    bundles: int
    cpu_cores: float = 0.0
    memory_bytes: int = 0
    disk_bytes_per_s: int = 0
    network_bytes_per_s: int = 0


class Reserved(Result, frozen=True):
    """A reservation: its allocation, for a recurring one as far as it is planned. Of more than 100 pieces, ``promised``
    has the next 100, and ``more`` is the number of the others. ``dropped`` says why it can no longer be kept; then
    nothing is allocated. ``launch_delay_s``: the recent placement delay of bundles as large as its largest; resources
    are freed at least that long before its time."""

    reservation: str
    user: str
    rdl: Rdl
    created_at: float
    name: str = ""
    dropped: str = ""
    promised: list[PromisedPiece] = []
    launch_delay_s: float = 0.0
    more: int = 0


class FreeRun(Result, frozen=True):
    """The unreserved capacity from ``start`` to ``finish`` (Unix time; None: for ever)."""

    start: float
    finish: float | None
    cpu_cores: float
    memory_bytes: float
    disk_bytes_per_s: float = 0.0
    network_bytes_per_s: float = 0.0


class Reserve(Params, frozen=True):
    """Reserve resources (createRes). Answered at once, with the allocation or with the error ``refused`` and the
    reason. ``name`` is for display."""

    MOST_BYTES: ClassVar[int] = _MOST_BYTES
    rdl: Rdl
    name: Label = ""


class UpdateReservation(Params, frozen=True):
    """Replace a reservation's request (updateRes). If it cannot fit, the answer is ``refused`` and nothing changes."""

    MOST_BYTES: ClassVar[int] = _MOST_BYTES
    reservation: ReservationId
    rdl: Rdl


class DeleteReservation(Params, frozen=True):
    """Delete a reservation (deleteRes); its jobs continue as ordinary ones."""

    reservation: ReservationId


class ListReservations(Params, frozen=True):
    """List the caller's reservations (listRes); for operators with ``everybody`` all. With ``at`` (Unix time), only
    those with an allocation at that time, and the free capacity from then on. ``skip`` leaves out the first ones, which
    an earlier answer had."""

    everybody: bool = False
    at: Annotated[float, msgspec.Meta(ge=0, lt=253_402_300_800)] | None = None
    skip: Annotated[int, msgspec.Meta(ge=0)] = 0


class Reservations(Result, frozen=True):
    """Reservations in the order of creation, as many as fit into a message; ``more``: others follow, ask again with
    ``skip``. With ``at``, ``free`` has the free capacity in at most a thousand runs."""

    reservations: list[Reserved]
    free: list[FreeRun] = []
    more: bool = False


class UseReservation(Params, frozen=True):
    """A job that is being registered asks to use this reservation; the answer contains the reservation's allocation."""

    reservation: ReservationId


class OnBehalf(Params, frozen=True):
    """A user's call that the user's host's agent relays. ``operator``: the user may act on what other users own."""

    MOST_BYTES: ClassVar[int] = 2 * 1024 * 1024  # 10,000 node names
    user: str
    operator: bool
    call: str
    params: dict[str, Any] = {}
