"""PURE. The reservations of a live cluster: the paper's four calls, and the present promises (§5.1).

The agenda counts in steps; the manager knows users and uses Unix time. Steps begin at the Unix epoch, so the numbers of
steps stay valid after a restart of the master.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import msgspec

from master.reservations.agenda import Agenda, Dropped, Returned
from master.reservations.gree import Gree
from master.reservations.gree_l import GreeL
from master.reservations.placement_delay import PlacementDelays
from master.reservations.plan import Piece, Plan
from master.reservations.rdl import (
    Bundle,
    Calendar,
    RdlError,
    Request,
    Wording,
    atoms_of,
    from_json,
    parse,
    parse_bundle,
)
from master.reservations.reservation import Reservation
from master.reservations.sharing import Instantaneous, Integral
from master.reservations.supply import Supply
from penstock.model.resource_vector import ResourceVector

#: Number of cached intervals without changes.
_MOMENTS = 32
#: Promises on drained or lost nodes within this many seconds are planned again; later ones are left as they are,
#: because most nodes are back in minutes.
REPAIR_AHEAD_S = 3600.0
#: Resources with an amount unknown to some agents → display name, and the agents' key that sets the amount.
_RATES = {
    "disk_bytes_per_s": ("the disks", "disk_bytes_per_s"),
    "network_bytes_per_s": ("the link", "network_link_bytes_per_s"),
}
_NODES_SHOWN = 5
#: Name in the configuration → factory of a planner for a plan.
PLANNERS: Mapping[str, Callable[[Plan], Gree]] = {
    "gree": Gree,
    "gree_early": partial(Gree, early=True),
    "gree_l": GreeL,
    "gree_l_strict": partial(GreeL, fallback=False),
}


class Declined(Exception):  # noqa: N818 - a no is an answer, and no error
    """A refusal, in one line. ``malformed``: the request is invalid; otherwise it cannot be promised."""

    def __init__(self, why: str, *, malformed: bool = False) -> None:
        super().__init__(why)
        self.malformed = malformed


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerSettings:
    """The settings of the plan.

    ``step_s`` is the length of a step in seconds; ``horizon_s`` how far ahead requests without a time are planned.
    ``most_at_once`` and ``most_over_time`` (in any ``window_s`` seconds) are the largest shares of the cluster promised
    to one tenant (1: no bound). ``bundles`` maps names to bundles, ``tenants`` users to tenants; another user is a
    tenant of that name.
    """

    step_s: float = 1.0
    horizon_s: float = 7 * 86_400.0
    planner: str = "gree"
    most_at_once: float = 1.0
    most_over_time: float = 1.0
    window_s: float = 86_400.0
    bundles: Mapping[str, Bundle] = field(default_factory=dict)
    tenants: Mapping[str, str] = field(default_factory=dict)

    def policies(self) -> list[Instantaneous | Integral]:
        """Return the policies that set a bound."""
        found: list[Instantaneous | Integral] = []
        if self.most_at_once < 1:
            found.append(Instantaneous(self.most_at_once))
        if self.most_over_time < 1:
            found.append(Integral(self.most_over_time, max(1, math.ceil(self.window_s / self.step_s))))
        return found


@dataclass(frozen=True, slots=True)
class Entry:
    """The manager's data of a reservation, besides the agenda's.

    ``rdl`` is the request as written; ``dropped`` is the reason why it could no longer be kept, empty while it is kept.
    """

    id: str
    name: str
    user: str
    rdl: str | dict[str, Any]
    created_at: float
    dropped: str = ""


class PastRecord(msgspec.Struct, frozen=True, array_like=True):
    """Finished turns of an owner from ``start`` to ``finish`` (Unix time), as stored; quotas over time count them."""

    start: float
    finish: float
    amounts: ResourceVector


@dataclass(frozen=True, slots=True)
class Promise:
    """The promise to a reservation at a moment, in ``bundles`` bundles."""

    amounts: ResourceVector
    bundles: int


class _Moment(NamedTuple):
    """The promises that hold in all the steps [since, until)."""

    since: int
    until: int | None
    promised: dict[str, Promise]
    later: frozenset[str]  # the reservations with a promise that begins afterwards


class ReservationManager:
    """Takes reservations for the cluster. ``at`` is always Unix time in seconds."""

    def __init__(self, settings: ManagerSettings) -> None:
        self.settings = settings
        self.agenda = Agenda(
            Bundle(),
            PLANNERS[settings.planner],
            horizon=max(1, math.floor(settings.horizon_s / settings.step_s)),
            policies=settings.policies(),
            wording=Wording(settings.step_s),
        )
        self.supply = Supply(max(2, math.ceil(REPAIR_AHEAD_S / settings.step_s)))
        self._repaired_until = 0  # the step up to which the plan excludes absent nodes
        #: Resource → nodes that do not report its amount: none of it is promised on them.
        self.unknown_rates: Mapping[str, Sequence[str]] = {}
        self.entries: dict[str, Entry] = {}
        #: The adapter's measured delays at the start of promises.
        self.placement_delays = PlacementDelays()
        self._moments: deque[_Moment] = deque(maxlen=_MOMENTS)
        self._version = self.agenda.plan.version

    # ------------------------------------------------------------ the four calls

    def create(self, entry: Entry, at: float) -> Reservation:
        """Promise a reservation.

        Raises: Declined: the request is invalid, the id exists, or it cannot be promised.
        """
        if entry.id in self.entries:
            raise Declined(f"there is a reservation {entry.id!r} already", malformed=True)
        request = self._request(entry.rdl, at)
        with self.without_away():
            why = self.agenda.create(
                entry.id, self.settings.tenants.get(entry.user, entry.user), request, self.step(at)
            )
        if why:
            raise Declined(f"{why}{self._note(request)}")
        self.entries[entry.id] = entry
        return self.kept(entry.id)

    def update(self, id: str, rdl: str | dict[str, Any], at: float) -> Reservation:  # noqa: A002 - the field's name
        """Replace a reservation's request; where that is impossible, it keeps its promise.

        Raises: Declined: the request is invalid, the reservation is unknown or was dropped, or it cannot be promised.
        """
        entry = self._entry(id)
        request = self._request(rdl, at)
        if entry.dropped:
            raise Declined(f"the reservation {id!r} was dropped: {entry.dropped}; create another")
        with self.without_away():
            why = self.agenda.update(id, request, self.step(at))
        if why:
            raise Declined(f"{why}{self._note(request)}; it keeps what it had")
        self.entries[id] = Entry(entry.id, entry.name, entry.user, rdl, entry.created_at)
        return self.kept(id)

    def delete(self, id: str, at: float) -> None:  # noqa: A002 - the field's name
        """Delete a reservation; its time is free again.

        Raises: Declined: there is none.
        """
        if self._entry(id).dropped:
            self.agenda.give_up(id)
        else:
            self.agenda.delete(id, self.step(at))
        del self.entries[id]

    def owned(self, user: str | None = None) -> list[Entry]:
        """Return the entries of one user, or all, in the order of creation, including dropped ones."""
        return [entry for entry in self.entries.values() if user is None or entry.user == user]

    def kept(self, id: str) -> Reservation:  # noqa: A002 - the field's name
        """Return the agenda's reservation.

        Raises: Declined: there is none, or it was dropped.
        """
        one = self.agenda.get(id)
        if one is not None:
            return one
        entry = self._entry(id)
        raise Declined(f"the reservation {id!r} was dropped: {entry.dropped}" if entry.dropped else f"{id!r} is over")

    # ------------------------------------------------------------ time and the cluster

    def advance(self, at: float) -> list[Dropped]:
        """Advance the time: remove finished reservations; return turns of recurring ones that cannot be planned."""
        dropped = self.agenda.advance(self.step(at))
        for entry in list(self.entries.values()):
            if self.agenda.known(entry.id) is None and not entry.dropped:
                del self.entries[entry.id]
        return dropped

    def set_capacity(self, capacity: Bundle, at: float, drained: Bundle | None = None) -> list[Dropped | Returned]:
        """Set the nodes' total capacity from now on, and the part on drained nodes (the adapter, §5.2). Return the
        turns dropped by it, and those promised again.

        Drained or lost capacity is missing for the next :data:`REPAIR_AHEAD_S` only. Later promises are left as they
        are until half of that time is over, when the plan is examined again. Nothing new is promised on absent nodes.
        """
        step, span = self.step(at), self.supply.kept_steps
        first = self.supply.whole == Bundle()
        changed = self.supply.update(capacity, drained or Bundle(), step)
        if not changed and step < self._repaired_until - span // 2:
            return []
        self._repaired_until = step + span
        plan = self.agenda.plan
        plan.set_capacity(0 if first else step, self.supply.whole)
        if self.supply.away:
            plan.set_capacity(step, self.supply.present, self._repaired_until)
        dropped = self.agenda.repair(step, self._repaired_until)
        for each in dropped:
            if self.agenda.get(each.id) is None:
                self.entries[each.id] = replace(self.entries[each.id], dropped=each.why)
        returned = self.agenda.give_back(step) if changed else []
        for again in returned:
            self.entries[again.id] = replace(self.entries[again.id], dropped="")
        return [*dropped, *returned]

    @contextmanager
    def without_away(self) -> Iterator[None]:
        """Exclude absent nodes from the plan within the context, so that nothing new is promised on them at any time.
        Earlier promises may then exceed the rest, and are left alone.
        """
        if not self.supply.away:
            yield
            return
        plan, since = self.agenda.plan, self._repaired_until
        plan.set_capacity(since, self.supply.present)
        try:
            yield
        finally:
            plan.set_capacity(since, self.supply.whole)

    def promised(self, at: float) -> dict[str, Promise]:
        """Return reservation → its present promise; reservations without one are left out. The caller must not modify
        the result, which is shared until something changes.
        """
        return self._moment(self.step(at)).promised

    def later(self, at: float) -> frozenset[str]:
        """Return the reservations with a promise that begins after ``at``."""
        return self._moment(self.step(at)).later

    def changes_at(self, at: float) -> float | None:
        """Return the time of the next change of promises after ``at``; None: never."""
        until = self._moment(self.step(at)).until
        return None if until is None else self.unix(until)

    def known(self, id: str) -> Reservation | None:  # noqa: A002 - the field's name
        """Return a reservation that is kept, or that was dropped and may be given back."""
        return self.agenda.known(id)

    def restore(self, entry: Entry, reservation: Reservation | None) -> None:
        """Restore a reservation of a previous master; None: it was dropped, and is still to be shown."""
        self.entries[entry.id] = entry
        if reservation is not None:
            self.agenda.restore(reservation, cut_off=bool(entry.dropped))

    def past(self, owner: str) -> list[PastRecord]:
        """Return an owner's finished reservations, as far as quotas count them."""
        runs = self.agenda.quotas.past(owner)
        return [PastRecord(self.unix(a), self.unix(b), ResourceVector._make(row)) for a, b, row in runs]

    def set_past(self, owner: str, past: Iterable[PastRecord]) -> None:
        """Restore :meth:`past`, independent of the length of its steps."""
        step_s = self.settings.step_s
        runs = [(self.step(run.start), math.ceil(run.finish / step_s), run.amounts) for run in past]
        self.agenda.quotas.set_past(owner, runs)

    def step(self, at: float) -> int:
        """Return the step at a time."""
        return math.floor(at / self.settings.step_s)

    def unix(self, step: int) -> float:
        """Return the time at which a step begins."""
        return step * self.settings.step_s

    # ------------------------------------------------------------ inside

    def _moment(self, step: int) -> _Moment:
        """Return the moment of a step; cached, because rounds ask for the same few moments repeatedly."""
        if self._version != self.agenda.plan.version:
            self._version = self.agenda.plan.version
            self._moments.clear()
        for known in self._moments:
            if known.since <= step and (known.until is None or step < known.until):
                return known
        since, until, found, later = 0, None, {}, set[str]()
        for one in self.agenda.reservations():
            now = list[Piece]()
            for piece in one.pieces:
                if piece.start <= step < piece.finish:
                    now.append(piece)
                elif step < piece.start:
                    later.add(one.id)
                for mark in piece[:2]:
                    if mark <= step:
                        since = max(since, mark)
                    elif until is None or mark < until:
                        until = mark
            if now:
                amounts = ResourceVector._make(map(sum, zip(*(piece.amounts for piece in now), strict=True)))
                found[one.id] = Promise(amounts, sum(piece.number for piece in now))
        moment = _Moment(since, until, found, frozenset(later))
        self._moments.append(moment)
        return moment

    def _request(self, rdl: str | dict[str, Any], at: float) -> Request:
        step_s = self.settings.step_s
        calendar = Calendar(step_s=step_s, now=self.step(at), wording=Wording(step_s))
        try:
            if isinstance(rdl, str):
                return parse(rdl, calendar, self.settings.bundles)
            return from_json(rdl, calendar, self.settings.bundles)
        except RdlError as error:
            raise Declined(str(error), malformed=True) from None

    def _entry(self, id: str) -> Entry:  # noqa: A002 - the field's name
        try:
            return self.entries[id]
        except KeyError:
            raise Declined(f"there is no reservation {id[:128]!r}", malformed=True) from None

    def _note(self, request: Request) -> str:
        """Return a note for a refusal on absent nodes and unknown rates."""
        away = [
            word for word, is_so in (("drained", self.supply.drained != Bundle()), ("lost", self.supply.lost)) if is_so
        ]
        notes = [f"nodes that are {' or '.join(away)} are not counted on"] if away else []
        bundles = [atom.bundle for atom in atoms_of(request.expression)]
        for resource, (name, key) in _RATES.items():
            nodes = self.unknown_rates.get(resource, ())
            if nodes and any(getattr(bundle, resource) for bundle in bundles):
                shown = ", ".join(nodes[:_NODES_SHOWN]) + (", …" if len(nodes) > _NODES_SHOWN else "")
                notes.append(f"the rate of {name} is not known of the nodes {shown}; set {key} of their agents")
        return f" ({'; '.join(notes)})" if notes else ""


def named_bundles(texts: Mapping[str, str]) -> dict[str, Bundle]:
    """Return the bundles of a configuration.

    Raises: RdlError: a bundle is invalid; the message names it.
    """
    found = {}
    for name, text in texts.items():
        try:
            found[name] = parse_bundle(text)
        except RdlError as error:
            raise RdlError(f"{name}: {error}") from None
    return found
