"""Whose turn it is where several share one thing by weight, one after the other: weighted fair queueing on service.

Agents' queues know an order of jobs and no shares. Who would have received the least for his weight, were he served
until the next look, goes first there, so that over some seconds each receives his share; and who weighs little waits
for it, as others would be kept waiting by what is much for him.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

Who = TypeVar("Who", bound=Hashable)


class Turns(Generic[Who]):
    """``received[who]`` is service ÷ weight since he came; a newcomer starts level with who has the least. Whose
    ``due`` is the smallest goes first: ``received``, and what all together received between the last two looks at which
    they received anything, ÷ his weight.

    ``lag`` bounds what somebody who wanted little for a while may catch up on, in service ÷ weight: nobody falls back
    behind the mean (by weight) of those who are here by more than that and a turn of his own.
    """

    def __init__(self, lag: float) -> None:
        self._lag = lag
        self._between = 0.0
        self.received: dict[Who, float] = {}
        self.due: dict[Who, float] = {}

    def update(self, served: Mapping[Who, float], weights: Mapping[Who, float]) -> None:
        """``served`` has what each of those who are here received since the last update; others are forgotten."""
        before = {who: self.received[who] for who in served if who in self.received}
        level = min(before.values(), default=0.0)
        now = {who: before.get(who, level) + served[who] / weights[who] for who in served}
        total = sum(weights[who] for who in now)
        mean = sum(weights[who] * value for who, value in now.items()) / total if now else 0.0
        self._between = sum(served.values()) or self._between
        turn = {who: self._between / weights[who] for who in now}
        kept = {who: max(value, mean - self._lag - turn[who]) for who, value in now.items()}
        least = min(kept.values(), default=0.0)
        self.received = {who: value - least for who, value in kept.items()}
        self.due = {who: value + turn[who] for who, value in self.received.items()}
