"""The order among the jobs of an application of which no run is known: the first goes ahead of the others.

The end of the first one tells the size of the others. Until then two guesses compete: the jobs are alike, and should be
served one after the other; or their sizes differ, and the job with the least service should go first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from master.ordering.policy import JobView
from penstock.model.units import counted

#: A later job goes before the first one while it has received less than 1 ÷ this of the service of that one. With the
#: probability p that the two are alike, and each expected to need as much again as it has received, their Gittins
#: indices are equal at a factor of 1 ÷ (1 − p). Measured in docs/benchmarks/order-of-jobs.md.
AHEAD = 2.5

#: A job and its Gittins index.
Indexed = tuple[JobView, float]


@dataclass(frozen=True, slots=True)
class Siblings:
    """Jobs of one user and application: their number, and the one that came first."""

    first: JobView
    jobs: int

    def said(self, job: JobView) -> str:
        """Return the rule, as it applies to this one of them, as text."""
        of = f"the first of {counted(self.jobs, 'job')} of {job.application}"
        if job.job == self.first.job:
            return f"it is {of}, and goes ahead of the others until it has received {AHEAD:g} times as much"
        if _goes_before(job, self.first):
            return f"{of} has received more than {AHEAD:g} times as much"
        return f"{of} goes ahead until it has received {AHEAD:g} times as much"


def first_ahead(ranked: Sequence[Indexed], unknown: AbstractSet[str]) -> tuple[list[Indexed], Mapping[str, Siblings]]:
    """Return the jobs in the new order, and by job its siblings if it has any among the ``unknown`` jobs.

    ``ranked`` are all jobs, the first first; ``unknown`` those of which no run is known. The places that siblings have
    together stay the same, so that the rule changes nothing for other jobs.
    """
    kinds: dict[tuple[str, str], list[int]] = {}
    for place, (job, _) in enumerate(ranked):
        if job.job in unknown:
            kinds.setdefault((job.user, job.application), []).append(place)
    order, siblings = list(ranked), dict[str, Siblings]()
    for places in kinds.values():
        if len(places) == 1:
            continue
        members = [ranked[place] for place in places]
        first = min(members, key=lambda one: one[0].earliest)
        others = [one for one in members if one is not first]
        before = [one for one in others if _goes_before(one[0], first[0])]
        after = [one for one in others if not _goes_before(one[0], first[0])]
        for place, one in zip(places, [*before, first, *after], strict=True):
            order[place] = one
            siblings[one[0].job] = Siblings(first[0], len(members))
    return order, siblings


def _goes_before(job: JobView, first: JobView) -> bool:
    return job.service * AHEAD < first.service
