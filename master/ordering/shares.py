"""Common parts of the orderings by shares: the job furthest below its share goes first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from master.ordering.policy import Amounts, JobView, Key, Reason


class Shared:
    """A ranking by a level per job, the smallest first, which grows as the job is given containers within the round."""

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
        """``growth``: the rise of a job's level per container given; ``reason`` is called on demand."""
        self._name = name
        self._levels = dict(levels)
        self._growth = growth
        self._order = order
        self._reason = reason
        self._place = {job: place for place, job in enumerate(order)}
        self._rooms = dict(rooms) if rooms is not None else None

    def key(self, job: str, score: float) -> Key:
        """Return the level, the place in the order, and the score for the stages within a job."""
        return (-self._levels[job], -float(self._place[job]), score)

    def charge(self, job: str, taken: Amounts) -> bool:
        """Count one container."""
        self._levels[job] += self._growth[job]
        if self._rooms is not None:
            self._rooms[job] -= 1
        return False

    def room(self, job: str) -> float:
        """Return the containers the job may hold beyond its present ones."""
        return float("inf") if self._rooms is None else self._rooms[job]

    def order(self) -> list[str]:
        """See :class:`master.ordering.policy.Ranking`."""
        return self._order

    def why(self, job: str) -> str:
        """Return the level, and the place among all jobs."""
        return f"{self._name} {self._levels[job]:.4g}, {self._place[job] + 1} of {len(self._order)}"

    def reason(self, job: str) -> Reason:
        """See :class:`master.ordering.policy.Ranking`."""
        return self._reason(job)


def received_since(jobs: Sequence[JobView], seen: Mapping[str, float]) -> dict[str, float]:
    """Return the service of each job since it was last seen; 0 for a new job."""
    return {job.job: max(0.0, job.service - seen.get(job.job, job.service)) for job in jobs}
