"""The interface of orderings: objects that rank the jobs of a round, from frozen views of the jobs and the cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.model.resource_vector import HOLDS_NOTHING, SlotVector

#: The larger key goes first.
Key = tuple[float, ...]
#: Seconds of work per kind of monotask.
KindSeconds = Sequence[float]
_ONE_OF_EACH = SlotVector(1.0, 1.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class StageView:
    """A stage: its known and its finished tasks, and the container-seconds it has received."""

    name: str
    tasks: int
    done: int
    service: float = 0.0

    @property
    def progress(self) -> float:
        """Return the finished fraction of its tasks, 0 to 1."""
        return self.done / self.tasks if self.tasks else 0.0


@dataclass(frozen=True, slots=True)
class JobView:
    """A job.

    ``user`` and ``application`` identify similar earlier jobs. ``tenant`` is a path (``research/eve``),
    ``submitted_at`` Unix time, ``sequence`` breaks ties. ``holds`` are the amounts its tasks hold now,
    ``containers`` their number. ``service`` is the received service in container-seconds (LAS_MQ §3.2). ``remaining``
    is R of Ursa §4.2.2 per kind, as seconds of the whole cluster.
    ``needs`` is the number of containers of its unfinished tasks, including running ones (LAS_MQ §3.3), ``wants`` the
    part of them in stages that can run now (§3.4); infinite while no tasks have been reported.
    """

    job: str
    tenant: str = ""
    weight: float = 1.0
    submitted_at: float = 0.0
    sequence: int = 0
    holds: SlotVector = HOLDS_NOTHING
    containers: int = 0
    service: float = 0.0
    stages: tuple[StageView, ...] = ()
    remaining: KindSeconds = (0.0, 0.0, 0.0)
    needs: float = 0.0
    wants: float = 0.0
    user: str = ""
    application: str = ""

    @property
    def earliest(self) -> tuple[float, int]:
        """Return the sort key for the order of submission."""
        return self.submitted_at, self.sequence


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster: ``now`` is Unix time, ``containers`` the number of one-core containers that fit. L of Ursa §4.2.2,
    the work of all jobs, is the sum of their R.
    """

    now: float = 0.0
    capacity: SlotVector = _ONE_OF_EACH
    containers: float = 1.0


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason for a job's place, for people and for programs.

    ``said`` is plain text, without the place and the name of the policy. ``queue`` is the job's multilevel queue, from
    1. ``left_s`` is the median of the remaining container-seconds of similar jobs that received as much, and
    ``known_jobs`` the number of known jobs of its user and application. None: the policy has no such number.
    """

    said: str
    queue: int | None = None
    left_s: float | None = None
    known_jobs: int | None = None


class Ranking(Protocol):
    """The jobs of one round. :meth:`charge` makes a placement count in the next choice."""

    @property
    def whole_stages(self) -> bool:
        """Return whether a stage is placed whole (Ursa); otherwise a few tasks at a time, so that shares are kept."""
        ...

    def key(self, job: str, score: float) -> Key:
        """Return the key of a stage of this job with this score of Algorithm 1; the largest key is placed next."""
        ...

    def charge(self, job: str, taken: SlotVector) -> bool:
        """Count a placed task that takes these amounts (cores, disk slots, network slots, bytes of memory).

        Return whether keys of other jobs may have changed; the job's own may change in any case.
        """
        ...

    def group(self, job: str) -> tuple[str, int]:
        """Return the group of a job, and how many first numbers of their keys the jobs of the group have in common.
        :meth:`charge` changes the other numbers of the charged job only.
        """
        ...

    def room(self, job: str) -> float:
        """Return the number of further containers the job may hold before others go first; infinite without a bound."""
        ...

    def order(self) -> list[str]:
        """Return all jobs, first to last: the order in the agents' queues and in admission."""
        ...

    def why(self, job: str) -> str:
        """Return one line: the rule and the numbers behind the job's place."""
        ...

    def reason(self, job: str) -> Reason:
        """Return the reason for the job's place, for people."""
        ...


class Ordering(Protocol):
    """A policy chosen by name; may keep state between rounds, but reads no clock."""

    @property
    def remembers(self) -> bool:
        """Return whether earlier rankings affect later ones."""
        ...

    def rank(self, jobs: Sequence[JobView], cluster: ClusterView) -> Ranking:
        """Rank these jobs."""
        ...


class Ordered:
    """A ranking that is an order of the jobs, without bounds; holdings do not affect it."""

    whole_stages = False

    def __init__(self, order: list[str], reason: Callable[[str], Reason]) -> None:
        """``reason`` is called on demand."""
        self._order = order
        self._reason = reason

    def charge(self, job: str, taken: SlotVector) -> bool:
        """Return False: holdings do not affect the ranking."""
        return False

    def group(self, job: str) -> tuple[str, int]:
        """Return one group of all jobs, whose keys have nothing in common."""
        return "", 0

    def room(self, job: str) -> float:
        """Return infinity: there is no bound."""
        return math.inf

    def order(self) -> list[str]:
        """Return the order."""
        return self._order

    def reason(self, job: str) -> Reason:
        """See :class:`Ranking`."""
        return self._reason(job)


class Scored(Ordered):
    """A ranking in which a job adds a number to the scores of its stages (Ursa §4.2.2, "Job ordering")."""

    whole_stages = True

    def __init__(
        self,
        added: Mapping[str, float],
        order: list[str],
        why: Mapping[str, str],
        reason: Callable[[str], Reason],
    ) -> None:
        """``why`` is given per job; ``order`` is by ``added``, ties by submission."""
        super().__init__(order, reason)
        self._added = added
        self._why = why

    def key(self, job: str, score: float) -> Key:
        """Return the score plus the job's number."""
        return (score + self._added[job],)

    def why(self, job: str) -> str:
        """See :class:`Ranking`."""
        return self._why[job]


def scored(
    jobs: Sequence[JobView],
    added: Mapping[str, float],
    why: Mapping[str, str],
    reason: Callable[[str], Reason],
    *,
    by: Mapping[str, float] | None = None,
) -> Scored:
    """Return the ranking of jobs with these added numbers. ``by`` gives the order where all added numbers may be 0."""
    first = by or added
    order = sorted(jobs, key=lambda job: (-first[job.job], *job.earliest))
    return Scored(added, [job.job for job in order], why, reason)


class Strict(Scored):
    """A ranking in which no stage of a later job goes before one of an earlier job, however well it fits."""

    def __init__(self, order: list[str], why: Mapping[str, str], reason: Callable[[str], Reason]) -> None:
        super().__init__({job: -float(place) for place, job in enumerate(order)}, order, why, reason)

    def key(self, job: str, score: float) -> Key:
        """Return the place, then the score."""
        return (self._added[job], score)
