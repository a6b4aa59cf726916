"""Common parts of the orderings by shares: the job furthest below its share goes first."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from master.ordering.policy import JobView, Key, Ordered, Reason
from penstock.model.resource_vector import SlotVector

Party = TypeVar("Party", bound=Hashable)


class Shared(Ordered):
    """A ranking by a level per job, the smallest first, which grows as the job is given containers within the round."""

    def __init__(
        self,
        name: str,
        levels: Mapping[str, float],
        growth: Mapping[str, float],
        order: list[str],
        reason: Callable[[str], Reason],
        rooms: Mapping[str, float] | None = None,
    ) -> None:
        """``growth``: the rise of a job's level per container given."""
        super().__init__(order, reason)
        self._name = name
        self._levels = dict(levels)
        self._growth = growth
        self._place = {job: place for place, job in enumerate(order)}
        self._rooms = dict.fromkeys(order, math.inf) if rooms is None else dict(rooms)

    def key(self, job: str, score: float) -> Key:
        """Return the level, the place in the order, and the score for the stages within a job."""
        return (-self._levels[job], -float(self._place[job]), score)

    def charge(self, job: str, taken: SlotVector) -> bool:
        """Count one container."""
        self._levels[job] += self._growth[job]
        self._rooms[job] -= 1
        return False

    def room(self, job: str) -> float:
        """Return the containers the job may hold beyond its present ones."""
        return self._rooms[job]

    def why(self, job: str) -> str:
        """Return the level, and the place among all jobs."""
        return f"{self._name} {self._levels[job]:.4g}, {self._place[job] + 1} of {len(self._order)}"


class Holdings:
    """What tenants (or jobs) hold of a cluster, as the largest fraction of any resource ÷ weight: dominant shares."""

    def __init__(self, capacity: SlotVector, weights: Mapping[str, float]) -> None:
        """``weights`` has all that may hold something."""
        self._capacity = capacity
        self._weights = weights
        self._held: dict[str, list[float]] = {level: [0.0] * len(capacity) for level in weights}
        self.shares = dict.fromkeys(weights, 0.0)

    def add(self, path: Sequence[str], taken: SlotVector) -> None:
        """Add amounts that each of a path holds: a tenant, its sub-tenant, and so on."""
        for level in path:
            held = self._held[level]
            for resource, amount in enumerate(taken):
                held[resource] += amount
            self.shares[level] = max(self._parts(level)) / self._weights[level]

    def dominant(self, level: str) -> tuple[float, str]:
        """Return the largest fraction that it holds of a resource, and the resource."""
        parts = self._parts(level)
        return max(parts), _RESOURCES[parts.index(max(parts))]

    def _parts(self, level: str) -> list[float]:
        return [held / have if have else 0.0 for held, have in zip(self._held[level], self._capacity, strict=True)]


_RESOURCES = ("cores", "disk slots", "network slots", "memory")


def received_since(jobs: Sequence[JobView], seen: Mapping[str, float]) -> dict[str, float]:
    """Return the service of each job since it was last seen; 0 for a new job."""
    return {job.job: max(0.0, job.service - seen.get(job.job, job.service)) for job in jobs}


class Turns(Generic[Party]):
    """Turns of parties that share one resource by weight, one after the other: weighted fair queueing on service.

    Agents' queues take an order of jobs, not shares. The party that would have received the least for its weight, if it
    were served until the next update, goes first, so that over some seconds each receives its share. A party of small
    weight waits longer for its turn, because a turn that is long for it would delay the others.

    ``received[party]`` is service ÷ weight since the party arrived; a new party starts level with the lowest one.
    The party with the smallest ``due`` goes first: ``received`` plus the sum of service between the last two updates
    with any service, ÷ its weight.

    ``lag`` bounds the service ÷ weight that a party may catch up on after wanting little: a party falls behind the
    weighted mean of the present parties by at most that and one turn of its own.
    """

    def __init__(self, lag: float) -> None:
        self._lag = lag
        self._between = 0.0
        self.received: dict[Party, float] = {}
        self.due: dict[Party, float] = {}

    def update(self, served: Mapping[Party, float], weights: Mapping[Party, float]) -> None:
        """Update from the service of each present party since the last update; absent parties are removed."""
        before = {party: self.received[party] for party in served if party in self.received}
        level = min(before.values(), default=0.0)
        now = {party: before.get(party, level) + served[party] / weights[party] for party in served}
        total = sum(weights[party] for party in now)
        mean = sum(weights[party] * value for party, value in now.items()) / total if now else 0.0
        self._between = sum(served.values()) or self._between
        turn = {party: self._between / weights[party] for party in now}
        kept = {party: max(value, mean - self._lag - turn[party]) for party, value in now.items()}
        least = min(kept.values(), default=0.0)
        self.received = {party: value - least for party, value in kept.items()}
        self.due = {party: value + turn[party] for party, value in self.received.items()}
