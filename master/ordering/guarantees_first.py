"""Guarantees first (Rayon §5.1, steps 5 and 6): the plan's absolute promises as an order of jobs.

Jobs of a reservation are served before all others until together they hold its present promise. Beyond that they rank
like other jobs. Jobs whose reservation has no promise now go last: they have their own time later, so best-effort work
takes idle resources first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from master.ordering.policy import Key, Ranking, Reason
from penstock.model.resource_vector import SlotVector
from penstock.model.units import counted

#: Tolerance for sums of fractions of cores.
_EPSILON = 1e-6


@dataclass(slots=True)
class Guarantee:
    """A reservation's present promise, and the holdings of its jobs together.

    A promise of 0 means that the resource is unspecified. ``bundles`` is the number of equal parts of the promise.
    """

    promised: SlotVector
    held: list[float]
    bundles: int = 1

    @property
    def lacking(self) -> bool:
        """Return whether more may be given: the holdings of every promised resource are below the promise."""
        return all(held < promised - _EPSILON for promised, held in self._said())

    def bundles_left(self) -> float:
        """Return the number of bundles missing from the promise."""
        missing = ((promised - held) / (promised / self.bundles) for promised, held in self._said())
        return max(0.0, min(missing, default=0.0))

    def take(self, taken: Iterable[float]) -> None:
        """Count the amounts held by a task of one of its jobs."""
        for index, amount in enumerate(taken):
            self.held[index] += amount

    def _said(self) -> list[tuple[float, float]]:
        return [(promised, held) for promised, held in zip(self.promised, self.held, strict=True) if promised]


def guarantees_first(ranking: Ranking, members: Mapping[str, str], guarantees: Mapping[str, Guarantee]) -> Ranking:
    """Put guaranteed jobs first. ``members``: jobs with a reservation; ``guarantees``: reservations with a present
    promise. Return the ranking itself where no job has a reservation.
    """
    return _Promised(ranking, members, guarantees) if members else ranking


class _Promised:
    def __init__(self, ranking: Ranking, members: Mapping[str, str], guarantees: Mapping[str, Guarantee]) -> None:
        self._ranking = ranking
        self._members = members
        self._guarantees = guarantees

    @property
    def whole_stages(self) -> bool:
        """A stage placed whole could exceed the promise, so guarantees exclude it."""
        return self._ranking.whole_stages and not any(one.lacking for one in self._guarantees.values())

    def key(self, job: str, score: float) -> Key:
        """Return whether the job lacks promised resources, whether its time has come, then the ordering's key."""
        return (float(self._lacks(job)), float(not self._early(job)), *self._ranking.key(job, score))

    def charge(self, job: str, taken: SlotVector) -> bool:
        """Charge the job; for a guaranteed job, the jobs of the same reservation lack less as well."""
        changed = self._ranking.charge(job, taken)
        guarantee = self._guarantees.get(self._members.get(job, ""))
        if guarantee is None:
            return changed
        before = guarantee.lacking
        guarantee.take(taken)
        return changed or guarantee.lacking != before

    def group(self, job: str) -> tuple[str, int]:
        """Return the jobs of the same reservation in the ordering's group."""
        group, common = self._ranking.group(job)
        return f"{self._members.get(job, '')}\0{group}", 2 + common

    def room(self, job: str) -> float:
        """Return at least the missing bundles."""
        room = self._ranking.room(job)
        if not self._lacks(job):
            return room
        return max(1.0, math.ceil(self._guarantees[self._members[job]].bundles_left()), room)

    def order(self) -> list[str]:
        """Return guaranteed jobs that lack resources first, early jobs last, each in the ordering's order."""
        return sorted(self._ranking.order(), key=lambda job: (not self._lacks(job), self._early(job)))

    def why(self, job: str) -> str:
        """Return the ordering's reason, and the missing promise."""
        return self._promise(job) + self._ranking.why(job)

    def reason(self, job: str) -> Reason:
        """Return the ordering's reason, and the missing promise."""
        reason = self._ranking.reason(job)
        return replace(reason, said=self._promise(job) + reason.said)

    def _promise(self, job: str) -> str:
        """Describe the effect of the job's promise on its place; empty without a promise or with all of it held."""
        reservation = self._members.get(job)
        if reservation is None:
            return ""
        if self._early(job):
            return f"{reservation} is promised nothing now; "
        guarantee = self._guarantees[reservation]
        left = guarantee.bundles_left()
        of_all = counted(guarantee.bundles, "bundle")
        return f"{left:.3g} of {of_all} of {reservation} are lacking; " if left else ""

    def _lacks(self, job: str) -> bool:
        guarantee = self._guarantees.get(self._members.get(job, ""))
        return guarantee is not None and guarantee.lacking

    def _early(self, job: str) -> bool:
        return job in self._members and self._members[job] not in self._guarantees
