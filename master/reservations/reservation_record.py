"""PURE. A reservation in its stored form: request and promise, so that a restart changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from master.reservations.agenda import Reservation
from master.reservations.plan import Piece
from master.reservations.rdl import Bundle, Expression, Request
from master.reservations.repair import Cut
from master.reservations.reservation_manager import Entry
from master.reservations.turn import Turn


class PieceRecord(msgspec.Struct, frozen=True, array_like=True):
    """``number`` bundles in the steps [start, finish)."""

    start: int
    finish: int
    number: int
    bundle: Bundle


class TurnRecord(msgspec.Struct, frozen=True):
    """One occurrence of a reservation; ``placed`` has pieces for each atom of ``expression``."""

    key: str
    expression: Expression
    placed: list[list[PieceRecord]]


class CutRecord(msgspec.Struct, frozen=True):
    """A turn without a promise from step ``since`` on, which may be given back."""

    turn: TurnRecord
    since: int


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
    turns: list[TurnRecord] = []
    cut: list[CutRecord] = []


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
        turns=[_to_keep(turn) for turn in reservation.turns.values()],
        cut=[CutRecord(_to_keep(cut.turn), cut.since) for cut in reservation.cut.values()],
    )


def from_record(kept: ReservationRecord) -> tuple[Entry, Reservation | None]:
    """Return the entry and the reservation of a stored form."""
    entry = Entry(kept.id, kept.name, kept.user, kept.rdl, kept.created_at, kept.dropped)
    if kept.request is None:
        return entry, None
    turns = {turn.key: _turn(turn) for turn in kept.turns}
    cut = {one.turn.key: Cut(_turn(one.turn), one.since) for one in kept.cut}
    return entry, Reservation(kept.id, kept.owner, kept.request, kept.sequence, turns, kept.next_turn, cut)


def _to_keep(turn: Turn) -> TurnRecord:
    placed = [[PieceRecord(p.start, p.finish, p.number, p.bundle) for p in pieces] for pieces in turn.placed]
    return TurnRecord(turn.key, turn.expression, placed)


def _turn(kept: TurnRecord) -> Turn:
    placed = [[Piece(p.start, p.finish, p.bundle, p.number) for p in pieces] for pieces in kept.placed]
    return Turn(kept.key, kept.expression, placed)
