"""PURE. The desk at which a live cluster takes reservations: the paper's four calls, and what is promised now (§5.1).

The agenda counts in steps; the desk knows users, and speaks in Unix time. Steps begin at the Unix epoch, so that a
master that was restarted counts as the one before it did.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from master.reservations.agenda import Agenda, Dropped, Planner, Reservation
from master.reservations.gree import Gree
from master.reservations.gree_l import GreeL
from master.reservations.launches import LaunchDelays
from master.reservations.plan import Piece, Plan, Vector
from master.reservations.rdl import (
    Bundle,
    Calendar,
    RdlError,
    Request,
    atoms_of,
    from_json,
    parse,
    parse_bundle,
)
from master.reservations.sharing import Instantaneous, Integral, SharingPolicy

#: So many stretches of time in which nothing changes are kept in mind.
_MOMENTS = 32
#: What is promised on nodes that are drained, so many seconds ahead, is planned anew; what is promised later is left as
#: it is. Nobody says when a drain ends: mostly in minutes, and what is dropped for it does not come back with the node.
DRAINED_FOR_S = 3600.0
#: Resources that agents may not know how much of they have → their names, and the agents' keys that tell it.
_RATES = {
    "disk_bytes_per_s": ("the disks", "disk_bytes_per_s"),
    "network_bytes_per_s": ("the link", "network_link_bytes_per_s"),
}
_NODES_SHOWN = 5
#: Name in the configuration → a planner over a plan.
PLANNERS: Mapping[str, Callable[[Plan], Planner]] = {
    "gree": Gree,
    "gree_early": lambda plan: Gree(plan, early=True),
    "gree_l": GreeL,
    "gree_l_strict": lambda plan: GreeL(plan, fallback=False),
}


class Declined(Exception):  # noqa: N818 - a no is an answer, and no error
    """A no, in one line. ``malformed``: what was asked makes no sense; else it cannot be promised."""

    def __init__(self, why: str, *, malformed: bool = False) -> None:
        super().__init__(why)
        self.malformed = malformed


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskSettings:
    """How the plan is made.

    ``step_s`` is the length of a step in seconds; ``horizon_s`` how far ahead is planned what names no time.
    ``most_at_once`` and ``most_over_time`` (in any ``window_s`` seconds) are shares of the cluster that one tenant may
    have promised (1: no bound). ``bundles`` have names, ``tenants`` users; who is not named there is a tenant himself.
    """

    step_s: float = 1.0
    horizon_s: float = 7 * 86_400.0
    planner: str = "gree"
    most_at_once: float = 1.0
    most_over_time: float = 1.0
    window_s: float = 86_400.0
    bundles: Mapping[str, Bundle] = field(default_factory=dict)
    tenants: Mapping[str, str] = field(default_factory=dict)

    def policies(self) -> list[SharingPolicy]:
        """Those that bind."""
        found: list[SharingPolicy] = []
        if self.most_at_once < 1:
            found.append(Instantaneous(self.most_at_once))
        if self.most_over_time < 1:
            found.append(Integral(self.most_over_time, max(1, math.ceil(self.window_s / self.step_s))))
        return found


@dataclass(frozen=True, slots=True)
class Entry:
    """What the desk knows of a reservation beside the agenda. ``rdl`` is what was asked, as it was written; ``dropped``
    why it could be kept no longer, empty as long as it is."""

    id: str
    name: str
    user: str
    rdl: str | dict[str, Any]
    created_at: float
    dropped: str = ""


@dataclass(frozen=True, slots=True)
class Promise:
    """What a reservation is promised at a moment: cores, disk bytes/s, network bytes/s, bytes of memory; in so many
    bundles, the smallest of which is ``bundle``."""

    reservation: str
    amounts: Vector
    bundles: int
    bundle: Bundle


class _Moment(NamedTuple):
    """The same is promised in all the steps [since, until)."""

    since: int
    until: int | None
    promised: dict[str, Promise]


class Desk:
    """``at`` is always Unix time in seconds."""

    def __init__(self, settings: DeskSettings) -> None:
        self.settings = settings
        self.agenda = Agenda(
            Bundle(),
            PLANNERS[settings.planner],
            horizon=max(1, math.floor(settings.horizon_s / settings.step_s)),
            policies=settings.policies(),
        )
        self.capacity = Bundle()
        self._drained = Bundle()  # what of it is of nodes that are drained
        self._drained_until = 0  # the step up to which the plan does without it
        #: Resource → the nodes that do not tell how much of it they have: nothing of it is promised on them.
        self.unknown_rates: Mapping[str, Sequence[str]] = {}
        self.entries: dict[str, Entry] = {}
        #: What the adapter knows of how promises begin.
        self.launches = LaunchDelays()
        self._moments: deque[_Moment] = deque(maxlen=_MOMENTS)
        self._version = self.agenda.plan.version

    # ------------------------------------------------------------ the four calls

    def create(self, entry: Entry, at: float) -> Reservation:
        """Promise it.

        Raises:
            Declined: it makes no sense, there is one of that id, or it cannot be promised.
        """
        if entry.id in self.entries:
            raise Declined(f"there is a reservation {entry.id!r} already", malformed=True)
        request = self._request(entry.rdl, at)
        with self.without_drained():
            why = self.agenda.create(entry.id, self._tenant(entry.user), request, self.step(at))
        if why:
            raise Declined(f"{why}{self._note(request)}")
        self.entries[entry.id] = entry
        return self.kept(entry.id)

    def update(self, id: str, rdl: str | dict[str, Any], at: float) -> Reservation:  # noqa: A002 - the field's name
        """Promise something else instead; where that cannot be, it keeps what it has.

        Raises:
            Declined: it makes no sense, there is none of that id (any more), or it cannot be promised.
        """
        entry = self._entry(id)
        request = self._request(rdl, at)
        if entry.dropped:
            raise Declined(f"the reservation {id!r} was dropped: {entry.dropped}; create another")
        with self.without_drained():
            why = self.agenda.update(id, request, self.step(at))
        if why:
            raise Declined(f"{why}{self._note(request)}; it keeps what it had")
        self.entries[id] = Entry(entry.id, entry.name, entry.user, rdl, entry.created_at)
        return self.kept(id)

    def delete(self, id: str) -> None:  # noqa: A002 - the field's name
        """Its time is everybody's again.

        Raises:
            Declined: there is none.
        """
        if not self._entry(id).dropped:
            self.agenda.delete(id)
        del self.entries[id]

    def owned(self, user: str | None = None) -> list[Entry]:
        """Those of one user, or all, in the order in which they came; those that were dropped are in it."""
        return [entry for entry in self.entries.values() if user is None or entry.user == user]

    def kept(self, id: str) -> Reservation:  # noqa: A002 - the field's name
        """What the agenda knows of one.

        Raises:
            Declined: there is none, or it was dropped.
        """
        one = self.agenda.get(id)
        if one is not None:
            return one
        entry = self._entry(id)
        raise Declined(f"the reservation {id!r} was dropped: {entry.dropped}" if entry.dropped else f"{id!r} is over")

    # ------------------------------------------------------------ time and the cluster

    def advance(self, at: float) -> list[Dropped]:
        """Time has passed; what is over is forgotten, and of those that recur, turns that cannot be had are told."""
        dropped = self.agenda.advance(self.step(at))
        living = {one.id for one in self.agenda.reservations()}
        for id in [id for id, entry in self.entries.items() if id not in living and not entry.dropped]:  # noqa: A001
            del self.entries[id]
        return dropped

    def set_capacity(self, capacity: Bundle, at: float, drained: Bundle | None = None) -> list[Dropped]:
        """The cluster has so much from now on (the adapter, §5.2); those that are promised less by it.

        ``drained`` is what of it is of nodes that are drained. Of what is promised already the plan does without them
        for the next :data:`DRAINED_FOR_S` only, and looks again when half of that is over; nothing new is promised on
        them at any time (:meth:`without_drained`).
        """
        step, drained = self.step(at), drained or Bundle()
        span = max(2, math.ceil(DRAINED_FOR_S / self.settings.step_s))
        looked = drained == Bundle() or step < self._drained_until - span // 2
        if capacity == self.capacity and drained == self._drained and looked:
            return []
        self.capacity, self._drained, self._drained_until = capacity, drained, step + span
        dropped = self.agenda.set_capacity(step, capacity, step)
        if drained != Bundle():
            dropped += self.agenda.set_capacity(step, _less(capacity, drained), step, step + span)
        living = {one.id for one in self.agenda.reservations()}
        for each in dropped:
            if each.id not in living:
                entry = self.entries[each.id]
                self.entries[each.id] = Entry(entry.id, entry.name, entry.user, entry.rdl, entry.created_at, each.why)
        return dropped

    @contextmanager
    def without_drained(self) -> Iterator[None]:
        """Within, the plan has of drained nodes nothing at all: as long as nobody has undrained them, nothing new is
        promised on them, however far ahead. What is promised then may exceed it, and is left alone."""
        if self._drained == Bundle():
            yield
            return
        plan, since = self.agenda.plan, self._drained_until
        plan.set_capacity(since, _less(self.capacity, self._drained))
        try:
            yield
        finally:
            plan.set_capacity(since, self.capacity)

    def promised(self, at: float) -> dict[str, Promise]:
        """Reservation → what it is promised now; those that are promised nothing now are left out. Not to be changed:
        the same is answered until something changes."""
        return self._moment(self.step(at)).promised

    def changes_at(self, at: float) -> float | None:
        """When what is promised changes next, after ``at``; None: never."""
        until = self._moment(self.step(at)).until
        return None if until is None else self.unix(until)

    def restore(self, entry: Entry, reservation: Reservation | None) -> None:
        """Take back what a master before us promised, as it was; None: it was dropped, and is still to be told."""
        self.entries[entry.id] = entry
        if reservation is not None:
            self.agenda.restore(reservation)

    def step(self, at: float) -> int:
        """The step that it is."""
        return math.floor(at / self.settings.step_s)

    def unix(self, step: int) -> float:
        """When a step begins."""
        return step * self.settings.step_s

    # ------------------------------------------------------------ inside

    def _moment(self, step: int) -> _Moment:
        """A round asks for the same few moments again and again."""
        if self._version != self.agenda.plan.version:
            self._version = self.agenda.plan.version
            self._moments.clear()
        for known in self._moments:
            if known.since <= step and (known.until is None or step < known.until):
                return known
        since, until, found = 0, None, {}
        for one in self.agenda.reservations():
            now = list[Piece]()
            for piece in (piece for turn in one.turns.values() for piece in turn.pieces):
                if piece.start <= step < piece.finish:
                    now.append(piece)
                for mark in piece[:2]:
                    if mark <= step:
                        since = max(since, mark)
                    elif until is None or mark < until:
                        until = mark
            if now:
                found[one.id] = _promise(one.id, now)
        moment = _Moment(since, until, found)
        self._moments.append(moment)
        return moment

    def _request(self, rdl: str | dict[str, Any], at: float) -> Request:
        calendar = Calendar(step_s=self.settings.step_s, now=self.step(at))
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
        """Beside why something cannot be promised."""
        notes = ["nodes that are drained are not counted on"] if self._drained != Bundle() else []
        bundles = [atom.bundle for atom in atoms_of(request.expression)]
        for resource, (name, key) in _RATES.items():
            nodes = self.unknown_rates.get(resource, ())
            if nodes and any(getattr(bundle, resource) for bundle in bundles):
                shown = ", ".join(nodes[:_NODES_SHOWN]) + (", …" if len(nodes) > _NODES_SHOWN else "")
                notes.append(f"the rate of {name} is not known of the nodes {shown}; set {key} of their agents")
        return f" ({'; '.join(notes)})" if notes else ""

    def _tenant(self, user: str) -> str:
        return self.settings.tenants.get(user, user)


def _less(capacity: Bundle, drained: Bundle) -> Bundle:
    return Bundle.of(max(0, has - gone) for has, gone in zip(capacity.amounts, drained.amounts, strict=True))


def _promise(id: str, pieces: Sequence[Piece]) -> Promise:  # noqa: A002 - the field's name
    cores, disk, network, memory = (
        sum(piece.number * piece.bundle.amounts[index] for piece in pieces) for index in range(4)
    )
    smallest = min((piece.bundle for piece in pieces), key=lambda bundle: bundle.amounts)
    return Promise(id, (cores, disk, network, memory), sum(piece.number for piece in pieces), smallest)


def named_bundles(texts: Mapping[str, str]) -> dict[str, Bundle]:
    """The bundles of a configuration.

    Raises:
        RdlError: one is none; the line names it.
    """
    found = {}
    for name, text in texts.items():
        try:
            found[name] = parse_bundle(text)
        except RdlError as error:
            raise RdlError(f"{name}: {error}") from None
    return found
