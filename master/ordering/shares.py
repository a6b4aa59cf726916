"""What the orderings by shares have in common: the job that is furthest below its share goes first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from master.ordering.policy import Key, Reason
from master.ordering.view import Amounts, JobView


class Shared:
    """A ranking by a number per job, the smallest first, that grows by what a job is given within the round."""

    whole_stages = False

    def __init__(
        self,
        name: str,
        levels: Mapping[str, float],
        growth: Mapping[str, float],
        order: list[str],
        reason: Callable[[str], Reason],
        rooms: Mapping[str, float] | None = None,
    ) -> None:
        """``growth`` is by how much a job's level rises with each container that it is given; ``reason`` is called when
        somebody asks."""
        self._name = name
        self._levels = dict(levels)
        self._growth = growth
        self._order = order
        self._reason = reason
        self._place = {job: place for place, job in enumerate(order)}
        self._rooms = dict(rooms) if rooms is not None else None

    def key(self, job: str, score: float) -> Key:
        """The level, then the place in the order; the score orders the stages within a job."""
        return (-self._levels[job], -float(self._place[job]), score)

    def charge(self, job: str, taken: Amounts) -> bool:
        """One container."""
        self._levels[job] += self._growth[job]
        if self._rooms is not None:
            self._rooms[job] -= 1
        return False

    def room(self, job: str) -> float:
        """What it may hold beyond what it holds."""
        return float("inf") if self._rooms is None else self._rooms[job]

    def order(self) -> list[str]:
        """See :class:`master.ordering.policy.Ranking`."""
        return self._order

    def why(self, job: str) -> str:
        """The level, and the place among all."""
        return f"{self._name} {self._levels[job]:.4g}, {self._place[job] + 1} of {len(self._order)}"

    def reason(self, job: str) -> Reason:
        """See :class:`master.ordering.policy.Ranking`."""
        return self._reason(job)


def received_since(jobs: Sequence[JobView], seen: Mapping[str, float]) -> dict[str, float]:
    """Service of each job since it was seen; of one that was not, nothing."""
    return {job.job: max(0.0, job.service - seen.get(job.job, job.service)) for job in jobs}
