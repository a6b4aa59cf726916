"""Reservations stored across restarts of the master (Rayon §5.1: an accepted request is a contract)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import sqlalchemy as sa

from master.reservations.rdl import Bundle, Request
from master.reservations.reservation import Reservation
from master.reservations.reservation_manager import Entry, PastRecord
from master.reservations.turns import Cut, Turn
from master.store.database import METADATA, Database, StoreError

_RESERVATIONS = sa.Table(
    "reservations",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("user", sa.Text, nullable=False),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("kept", sa.LargeBinary, nullable=False),
)
_PAST = sa.Table(
    "reserved_past",
    METADATA,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("past", sa.LargeBinary, nullable=False),
)
_CAPACITY = sa.Table(
    "reserved_capacity",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("capacity", sa.LargeBinary, nullable=False),
)

_NO_PAST: Mapping[str, list[PastRecord]] = {}


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


class ReservationStore:
    """The stored reservations; blocking, like the database. Every call is one transaction, complete on return."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep(
        self, changed: list[ReservationRecord], deleted: list[str], past: Mapping[str, list[PastRecord]] = _NO_PAST
    ) -> None:
        """Store the changed reservations and delete the finished ones, in one transaction.

        ``past``: owner → finished reservations that quotas count.

        Raises: StoreError: the database failed.
        """
        gone = [*deleted, *(one.id for one in changed)]
        with self._database.transaction() as connection:
            if gone:
                connection.execute(sa.delete(_RESERVATIONS).where(_RESERVATIONS.c.id.in_(gone)))
            if changed:
                rows = [
                    {"id": one.id, "user": one.user, "sequence": one.sequence, "kept": msgspec.json.encode(one)}
                    for one in changed
                ]
                connection.execute(sa.insert(_RESERVATIONS), rows)
            if past:
                connection.execute(sa.delete(_PAST).where(_PAST.c.owner.in_(list(past))))
            if had := [{"owner": owner, "past": msgspec.json.encode(runs)} for owner, runs in past.items() if runs]:
                connection.execute(sa.insert(_PAST), had)

    def past(self) -> dict[str, list[PastRecord]]:
        """Return the finished reservations that quotas count, by owner.

        Raises: StoreError: the database failed.
        """
        with self._database.transaction() as connection:
            rows = connection.execute(sa.select(_PAST.c.owner, _PAST.c.past)).all()
        try:
            return {row.owner: msgspec.json.decode(row.past, type=list[PastRecord]) for row in rows}
        except msgspec.DecodeError as error:
            raise StoreError(f"store: {self._database.shown}: what was reserved cannot be read: {error}") from None

    def all(self, step_s: float) -> list[ReservationRecord]:
        """Return the stored reservations in the order of acceptance.

        Raises: StoreError: the database failed, or the plan used steps of another length.
        """
        with self._database.transaction() as connection:
            rows = connection.execute(sa.select(_RESERVATIONS.c.kept).order_by(_RESERVATIONS.c.sequence)).all()
        try:
            kept = [msgspec.json.decode(row.kept, type=ReservationRecord) for row in rows]
        except msgspec.DecodeError as error:
            raise StoreError(f"store: {self._database.shown}: a reservation cannot be read: {error}") from None
        for index, one in enumerate(kept):
            if one.dropped and one.step_s != step_s:  # its steps have lost their meaning
                kept[index] = msgspec.structs.replace(one, request=None, turns=[], cut=[])
            elif one.request is not None and one.step_s != step_s:
                raise StoreError(
                    f"reservation_step_s: the reservations in {self._database.shown} were planned in steps of "
                    f"{one.step_s:g} s; set it back, or delete them first"
                )
        return kept

    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    def keep_capacity(self, capacity: Bundle) -> None:
        """Store the cluster's capacity: a starting master uses it until the nodes have had time to return.

        Raises: StoreError: the database failed.
        """
        with self._database.transaction() as connection:
            connection.execute(sa.delete(_CAPACITY))
            connection.execute(sa.insert(_CAPACITY).values(id=1, capacity=msgspec.json.encode(capacity)))

    def capacity(self) -> Bundle | None:
        """Return the capacity stored by :meth:`keep_capacity`; None: none was stored.

        Raises: StoreError: the database failed.
        """
        with self._database.transaction() as connection:
            found = connection.scalar(sa.select(_CAPACITY.c.capacity))
        return None if found is None else msgspec.json.decode(found, type=Bundle)
