"""Promises come first (Rayon §5.1, steps 5 and 6): the plan's absolute promises as an order of jobs.

Jobs of a reservation are served before all others until they hold together what it is promised now. Beyond that they
are jobs like any others. Those whose reservation is promised nothing now go last: what would be idle anticipates work
that has its own time, and best-effort work, whose only time this is, comes before it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from master.ordering.policy import Key, Ranking, Reason
from master.ordering.view import Amounts

#: Fractions of cores add up with errors of this size.
_EPSILON = 1e-6


@dataclass(slots=True)
class Guarantee:
    """What the jobs of a reservation are promised now, and hold, together.

    Amounts are cores, disk slots, network slots and bytes of memory; 0 promised of a resource: nothing was said of it.
    ``bundles`` is in how many pieces it is promised.
    """

    promised: Amounts
    held: list[float]
    bundles: int = 1

    @property
    def lacking(self) -> bool:
        """Whether something may still be given: of no resource more than is promised."""
        return all(held < promised - _EPSILON for promised, held in self._said())

    def bundles_left(self) -> float:
        """How many more of its bundles fit into what is promised."""
        missing = ((promised - held) / (promised / self.bundles) for promised, held in self._said())
        return max(0.0, min(missing, default=0.0))

    def take(self, taken: Amounts) -> None:
        """A task of one of its jobs holds so much."""
        for index, amount in enumerate(taken):
            self.held[index] += amount

    def _said(self) -> list[tuple[float, float]]:
        return [(promised, held) for promised, held in zip(self.promised, self.held, strict=True) if promised]


def promised_first(ranking: Ranking, members: Mapping[str, str], guarantees: Mapping[str, Guarantee]) -> Ranking:
    """``members`` are the jobs that have a reservation; ``guarantees`` those reservations that are promised something
    now. The ranking itself where no job has one."""
    return _Promised(ranking, members, guarantees) if members else ranking


class _Promised:
    def __init__(self, ranking: Ranking, members: Mapping[str, str], guarantees: Mapping[str, Guarantee]) -> None:
        self._ranking = ranking
        self._members = members
        self._guarantees = guarantees

    @property
    def whole_stages(self) -> bool:
        """What is promised must not be exceeded by a stage that is placed whole."""
        return self._ranking.whole_stages and not any(one.lacking for one in self._guarantees.values())

    def key(self, job: str, score: float) -> Key:
        """Whether it lacks something promised, and whether its time has come; then as the ordering says."""
        return (float(self._lacks(job)), float(not self._early(job)), *self._ranking.key(job, score))

    def charge(self, job: str, taken: Amounts) -> bool:
        """Of a job with a promise: the others that share it lack less, too."""
        changed = self._ranking.charge(job, taken)
        guarantee = self._guarantees.get(self._members.get(job, ""))
        if guarantee is None:
            return changed
        before = guarantee.lacking
        guarantee.take(taken)
        return changed or guarantee.lacking != before

    def room(self, job: str) -> float:
        """At least what it lacks."""
        room = self._ranking.room(job)
        if not self._lacks(job):
            return room
        return max(1.0, math.ceil(self._guarantees[self._members[job]].bundles_left()), room)

    def order(self) -> list[str]:
        """Who lacks something promised; then as the ordering says; those whose time has not come last."""
        return sorted(self._ranking.order(), key=lambda job: (not self._lacks(job), self._early(job)))

    def why(self, job: str) -> str:
        """The ordering's reason, and what is lacking."""
        return self._promise(job) + self._ranking.why(job)

    def reason(self, job: str) -> Reason:
        """The ordering's reason, and what is lacking."""
        reason = self._ranking.reason(job)
        return replace(reason, said=self._promise(job) + reason.said)

    def _promise(self, job: str) -> str:
        """Return what the job's promise makes of its place; empty where it has none, or has all of it."""
        reservation = self._members.get(job)
        if reservation is None:
            return ""
        if self._early(job):
            return f"{reservation} is promised nothing now; "
        guarantee = self._guarantees[reservation]
        left = guarantee.bundles_left()
        return f"{left:.3g} of {guarantee.bundles} bundles of {reservation} are lacking; " if left else ""

    def _lacks(self, job: str) -> bool:
        guarantee = self._guarantees.get(self._members.get(job, ""))
        return guarantee is not None and guarantee.lacking

    def _early(self, job: str) -> bool:
        return job in self._members and self._members[job] not in self._guarantees
