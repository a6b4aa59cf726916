"""PURE. A reservation in its stored form: request and promise, so that a restart changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from master.reservations.agenda import Reservation
from master.reservations.rdl import Request
from master.reservations.reservation_manager import Entry
from master.reservations.turns import Cut, Turn


class ReservationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stored reservation; without ``request`` it was dropped, and is not given back."""

    id: str
    name: str
    user: str
    owner: str
    rdl: str | dict[str, Any]
    created_at: float
    step_s: float
    dropped: str = ""
    sequence: int = 0
    request: Request | None = None
    next_turn: int = 0
    turns: list[Turn] = []
    cut: list[Cut] = []


def to_keep(entry: Entry, reservation: Reservation | None, step_s: float) -> ReservationRecord:
    """Return a reservation's stored form."""
    kept = ReservationRecord(
        id=entry.id,
        name=entry.name,
        user=entry.user,
        owner=entry.user if reservation is None else reservation.owner,
        rdl=entry.rdl,
        created_at=entry.created_at,
        step_s=step_s,
        dropped=entry.dropped,
    )
    if reservation is None:
        return kept
    return msgspec.structs.replace(
        kept,
        sequence=reservation.sequence,
        request=reservation.request,
        next_turn=reservation.next_turn,
        turns=[*reservation.turns.values()],
        cut=[*reservation.cut.values()],
    )


def from_record(kept: ReservationRecord) -> tuple[Entry, Reservation | None]:
    """Return the entry and the reservation of a stored form."""
    entry = Entry(kept.id, kept.name, kept.user, kept.rdl, kept.created_at, kept.dropped)
    if kept.request is None:
        return entry, None
    turns = {turn.key: turn for turn in kept.turns}
    cut = {one.turn.key: one for one in kept.cut}
    return entry, Reservation(kept.id, kept.owner, kept.request, kept.sequence, turns, kept.next_turn, cut)
