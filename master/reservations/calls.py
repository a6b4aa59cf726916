"""PURE. The four calls of Rayon's interface (§5.1) as relayed by agents: authorization and answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from msgspec.structs import asdict

from master.reservations.placement_delay import size
from master.reservations.reservation_manager import Declined, Entry, ReservationManager
from master.reservations.timeline import free_runs
from penstock.wire import reservation_api as api
from penstock.wire.errors import bad_request, refused
from penstock.wire.relayed_methods import OF_RESERVATIONS

#: Largest number of reservations per user: each is examined in each step of the plan.
MOST_OF_A_USER = 1000
#: Largest number of shown pieces of a reservation.
MOST_PIECES = 100
#: An answer has no further reservation beyond this size: half of a message to a client.
_PAGE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, and the id of the reservation that was changed or deleted."""

    answer: api.Reserved | api.Reservations
    changed: str = ""


def answer(manager: ReservationManager, asked: api.OnBehalf, fresh_id: str, at: float) -> Answered:
    """Answer a call. ``at`` is Unix time; ``fresh_id`` is the id for a new reservation.

    Raises: RpcError: ``bad_request``: the call is invalid; ``refused``: it belongs to another user, or cannot be
    promised.
    """
    params = OF_RESERVATIONS.read(asked)
    try:
        match params:
            case api.Reserve(rdl, name):
                if len(manager.owned(asked.user)) >= MOST_OF_A_USER:
                    raise refused(f"{asked.user} has {MOST_OF_A_USER} reservations", remedy="delete some first")
                manager.create(Entry(fresh_id, name, asked.user, rdl, at), at)
                return Answered(show(manager, fresh_id, at), fresh_id)
            case api.UpdateReservation(reservation, rdl):
                _owned(manager, reservation, asked)
                manager.update(reservation, rdl, at)
                return Answered(show(manager, reservation, at), reservation)
            case api.DeleteReservation(reservation):
                _owned(manager, reservation, asked)
                manager.delete(reservation, at)
                return Answered(_page(manager, _ids(manager, asked.user), at), reservation)
            case api.ListReservations(everybody, then, skip):
                if everybody and not asked.operator:
                    raise refused(
                        "only operators see everybody's reservations",
                        field="everybody",
                        remedy="ask for your own, without --all",
                    )
                user = None if everybody else asked.user
                if then is not None:
                    return Answered(_then(manager, user, at, then, skip))
                return Answered(_page(manager, _ids(manager, user)[skip:], at))
            case api.UseReservation(reservation):
                may_use(manager, reservation, asked.user)
                return Answered(show(manager, reservation, at))
    except Declined as no:
        if no.malformed:
            of_rdl = str(no).startswith("rdl: ") or "reservation" not in asked.params
            raise bad_request(str(no).removeprefix("rdl: "), field="rdl" if of_rdl else "reservation") from None
        raise refused(str(no)) from None
    raise AssertionError(asked.call)


def may_use(manager: ReservationManager, reservation: str, user: str) -> None:
    """Check that a user's job may belong to this reservation: for its owner, and other users of the owner's tenant.

    Raises: RpcError: ``bad_request``: the reservation is unknown; ``refused``: it is another tenant's, or was dropped.
    """
    entry = _known(manager, reservation)
    tenants = manager.settings.tenants
    if tenants.get(user, user) != tenants.get(entry.user, entry.user):
        raise refused(f"the reservation {reservation!r} belongs to {entry.user}", field="reservation")
    if entry.dropped:
        raise refused(f"the reservation {reservation!r} was dropped: {entry.dropped}", field="reservation")


def show(manager: ReservationManager, id: str, at: float, then: float | None = None) -> api.Reserved:  # noqa: A002 - the field's name
    """Return a reservation's state at Unix time ``at``. Of too many pieces, those from ``then`` (default: ``at``) on
    are shown.
    """
    entry = manager.entries[id]
    pieces = [] if entry.dropped else sorted(manager.kept(id).pieces, key=lambda piece: (piece.start, piece.finish))
    since, shown = manager.step(at if then is None else then), pieces
    if len(pieces) > MOST_PIECES:
        shown = [piece for piece in pieces if piece.finish > since][:MOST_PIECES]
    sizes = {size(piece.bundle.cpu_cores, piece.bundle.memory_bytes) for piece in pieces}
    return api.Reserved(
        reservation=id,
        user=entry.user,
        rdl=entry.rdl,
        created_at=entry.created_at,
        name=entry.name,
        dropped=entry.dropped,
        launch_delay_s=max((manager.placement_delays.delay_s(each, at) for each in sizes), default=0.0),
        promised=[
            api.PromisedPiece(
                start=manager.unix(piece.start),
                finish=manager.unix(piece.finish),
                bundles=piece.number,
                **asdict(piece.bundle),
            )
            for piece in shown
        ],
        more=len(pieces) - len(shown),
    )


def _ids(manager: ReservationManager, user: str | None) -> list[str]:
    return [entry.id for entry in manager.owned(user)]


def _page(manager: ReservationManager, ids: Iterable[str], at: float, then: float | None = None) -> api.Reservations:
    """Return the first of these reservations, as many as one message may have."""
    found, size_bytes = list[api.Reserved](), 0
    for id in ids:  # noqa: A001 - the field's name
        if size_bytes >= _PAGE_BYTES:
            return api.Reservations(reservations=found, more=True)
        found.append(show(manager, id, at, then))
        size_bytes += len(msgspec.msgpack.encode(found[-1]))
    return api.Reservations(reservations=found)


def _then(manager: ReservationManager, user: str | None, at: float, then: float, skip: int) -> api.Reservations:
    """Return the reservations with a promise at another time, and the free capacity then."""
    promised = manager.promised(then)
    ids = [id for id in _ids(manager, user) if id in promised]  # noqa: A001 - the field's name
    found = _page(manager, ids[skip:], at, then)
    return msgspec.structs.replace(found, free=free_runs(manager, then))


def _owned(manager: ReservationManager, id: str, asked: api.OnBehalf) -> None:  # noqa: A002 - the field's name
    """Raises RpcError: the reservation is unknown, or belongs to another user."""
    entry = _known(manager, id)
    if entry.user != asked.user and not asked.operator:
        raise refused(f"the reservation {id!r} belongs to {entry.user}", field="reservation")


def _known(manager: ReservationManager, id: str) -> Entry:  # noqa: A002 - the field's name
    """Raises RpcError: the reservation is unknown."""
    entry = manager.entries.get(id)
    if entry is None:
        said = f"there is no reservation {id[:128]!r}"
        raise bad_request(said, field="reservation", remedy="see `penstock reservations`")
    return entry
