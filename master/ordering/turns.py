"""Turns of several parties that share one resource by weight, one after the other: weighted fair queueing on service.

Agents' queues take an order of jobs, not shares. The party that would have received the least for its weight, if it
were served until the next update, goes first, so that over some seconds each receives its share. A party of small
weight waits longer for its turn, because a turn that is long for it would delay the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

Party = TypeVar("Party", bound=Hashable)


class Turns(Generic[Party]):
    """``received[party]`` is service ÷ weight since the party arrived; a new party starts level with the lowest one.
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
