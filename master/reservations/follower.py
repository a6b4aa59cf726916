"""PURE. The plan follower (Rayon §5.2): passes promises that hold now, or soon, to the round."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from master.core.guarantees import Promised
from master.reservations.placement_delay import Size, size_of
from master.reservations.reservation_manager import Promise, ReservationManager

#: Learnt delays are rounded to multiples of this (seconds), so that few moments are requested.
_APART_S = 0.5
#: Lead from now (seconds) → the manager's promises then, by reservation.
_Seen = list[tuple[float, dict[str, Promise]]]


class Follower:
    """The cluster's plan: the manager's promises now, or within ``lead_s`` seconds.

    Room is made that long before a promise begins, because stopping other work takes a while, as does the start of
    promised work. For bundle sizes that were measured to wait longer for their place, room is made earlier by that time
    (the adapter's corrections, Rayon §5.2).
    """

    def __init__(self, manager: ReservationManager, lead_s: float) -> None:
        self._manager = manager
        self.lead_s = lead_s
        self._last: _Merged | None = None

    def promised(self, at: float) -> Mapping[str, Promised]:
        """See :class:`master.core.guarantees.Plan`."""
        if not self._manager.entries:
            return {}
        learnt = self._learnt(at)
        seen = [(lead_s, self._manager.promised(at + lead_s)) for lead_s in self._leads(learnt)]
        if self._last is None or not self._last.holds(learnt, seen):
            self._last = _Merged(learnt, seen, self._merged(learnt, seen))
        return self._last.promised

    def later(self, at: float) -> Collection[str]:
        """See :class:`master.core.guarantees.Plan`."""
        return self._manager.later(at)

    def saw(self, at: float, waiting: Collection[str]) -> None:
        """See :class:`master.core.guarantees.Plan`."""
        self._manager.placement_delays.saw(at, self.promised(at), waiting)

    def changes_at(self, at: float) -> float | None:
        """Return when :meth:`promised` changes next after ``at`` (Unix); None: never, as far as is known."""
        changes = ((lead_s, self._manager.changes_at(at + lead_s)) for lead_s in self._leads(self._learnt(at)))
        return min((moment - lead_s for lead_s, moment in changes if moment is not None), default=None)

    def _learnt(self, at: float) -> dict[Size, float]:
        """Return the additional lead of each size (seconds)."""
        late = ((size, delay_s - self.lead_s) for size, delay_s in self._manager.placement_delays.all(at).items())
        return {size: math.ceil(more_s / _APART_S) * _APART_S for size, more_s in late if more_s > 0}

    def _leads(self, learnt: Mapping[Size, float]) -> list[float]:
        """Return all leads in use, including 0, the shortest first."""
        return sorted({0.0, self.lead_s, *(self.lead_s + each for each in learnt.values())})

    def _merged(self, learnt: Mapping[Size, float], seen: _Seen) -> dict[str, Promised]:
        found: dict[str, Promised] = {}
        for lead_s, promises in seen:
            for reservation, promise in promises.items():
                promised = Promised(promise.amounts.cpu_cores, promise.amounts.memory_bytes, promise.bundles)
                if lead_s <= self.lead_s + (learnt.get(size_of(promised), 0.0) if learnt else 0.0):
                    before = found.get(reservation)
                    found[reservation] = promised if before is None else _more(before, promised)
        return found


@dataclass(frozen=True, slots=True)
class _Merged:
    """A result that stays valid while the manager returns the same objects for the same moments."""

    learnt: Mapping[Size, float]
    seen: _Seen
    promised: dict[str, Promised]

    def holds(self, learnt: Mapping[Size, float], seen: _Seen) -> bool:
        if self.learnt != learnt or len(self.seen) != len(seen):
            return False
        return all(a[0] == b[0] and a[1] is b[1] for a, b in zip(self.seen, seen, strict=True))


def _more(one: Promised, other: Promised) -> Promised:
    return Promised(
        max(one.cores, other.cores), max(one.memory_bytes, other.memory_bytes), max(one.bundles, other.bundles)
    )
