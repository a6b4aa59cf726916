"""What every ordering is: an object that ranks the jobs of a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from master.ordering.view import Amounts, ClusterView, JobView

#: The larger goes first.
Key = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job has its place, for people and for programs.

    ``said`` is plain words, without the place and the name of the policy. ``queue`` is the job's multilevel queue, 1 is
    the first; ``left_s`` the container-seconds within which half of the jobs like it end that received as much, and
    ``known_jobs`` how many jobs of its user and application are known. None: the policy has no such number.
    """

    said: str
    queue: int | None = None
    left_s: float | None = None
    known_jobs: int | None = None


class Ranking(Protocol):
    """The jobs of one round. :meth:`charge` lets the next choice see what was just given."""

    @property
    def whole_stages(self) -> bool:
        """Whether a stage is placed whole (Ursa); if not, a few tasks of it at a time, so that shares are kept to."""
        ...

    def key(self, job: str, score: float) -> Key:
        """Of a stage of this job that Algorithm 1 scored so; the stage with the largest key is placed next."""
        ...

    def charge(self, job: str, taken: Amounts) -> bool:
        """A task of the job was placed and takes so much (cores, disk slots, network slots, bytes of memory).

        Returns whether the keys of other jobs may have changed with it; its own may in any case.
        """
        ...

    def room(self, job: str) -> float:
        """How many more containers the job may hold before others go first; infinite where there is no such bound."""
        ...

    def order(self) -> list[str]:
        """All jobs, first to last: the order in the agents' queues and in admission."""
        ...

    def why(self, job: str) -> str:
        """One line: the rule and the numbers that gave the job its place."""
        ...

    def reason(self, job: str) -> Reason:
        """Return why the job has its place, as people are told it."""
        ...


class Ordering(Protocol):
    """Chosen by name; may remember things from round to round, but knows no clock."""

    @property
    def remembers(self) -> bool:
        """Whether what it saw when it was asked before makes a difference to what it says."""
        ...

    def rank(self, jobs: Sequence[JobView], cluster: ClusterView) -> Ranking:
        """The order of these jobs now."""
        ...


class Scored:
    """A ranking in which a job adds a number to the scores of its stages (Ursa §4.2.2, "Job ordering")."""

    whole_stages = True

    def __init__(
        self,
        added: Mapping[str, float],
        order: list[str],
        why: Mapping[str, str],
        reason: Callable[[str], Reason],
    ) -> None:
        """``why`` is said per job, ``reason`` when asked for; ``order`` is by ``added``, ties by submission."""
        self._added = added
        self._order = order
        self._why = why
        self._reason = reason

    def key(self, job: str, score: float) -> Key:
        """The score and what the job adds to it."""
        return (score + self._added[job],)

    def charge(self, job: str, taken: Amounts) -> bool:
        """What a job holds does not change its place."""
        return False

    def room(self, job: str) -> float:
        """No bound."""
        return float("inf")

    def order(self) -> list[str]:
        """By what they add."""
        return self._order

    def why(self, job: str) -> str:
        """See :class:`Ranking`."""
        return self._why[job]

    def reason(self, job: str) -> Reason:
        """See :class:`Ranking`."""
        return self._reason(job)


def scored(
    jobs: Sequence[JobView],
    added: Mapping[str, float],
    why: Mapping[str, str],
    reason: Callable[[str], Reason],
    *,
    by: Mapping[str, float] | None = None,
) -> Scored:
    """The ranking of jobs that add so much. ``by`` orders them where nothing may be added; else what they add does."""
    first = by or added
    order = sorted(jobs, key=lambda job: (-first[job.job], *job.earliest))
    return Scored(added, [job.job for job in order], why, reason)


class Strict(Scored):
    """A ranking in which no stage of a later job goes before one of an earlier job, however well it fits."""

    def __init__(self, order: list[str], why: Mapping[str, str], reason: Callable[[str], Reason]) -> None:
        super().__init__({job: -float(place) for place, job in enumerate(order)}, order, why, reason)

    def key(self, job: str, score: float) -> Key:
        """The place first."""
        return (self._added[job], score)
