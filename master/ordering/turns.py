"""Whose turn it is where several share one thing by weight, one after the other: start-time fair queueing on service.

Agents' queues know an order of jobs and no shares. Who has received the least for his weight goes first there until the
next look, so that over some seconds each receives his share.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

Who = TypeVar("Who", bound=Hashable)


class Turns(Generic[Who]):
    """``received[who]`` is service ÷ weight since he came; a newcomer starts level with who has the least.

    ``lag`` bounds what somebody who wanted little for a while may catch up on, in service ÷ weight.
    """

    def __init__(self, lag: float) -> None:
        self._lag = lag
        self.received: dict[Who, float] = {}

    def update(self, served: Mapping[Who, float], weights: Mapping[Who, float]) -> None:
        """``served`` has what each of those who are here received since the last update; others are forgotten."""
        before = {who: self.received[who] for who in served if who in self.received}
        level = min(before.values(), default=0.0)
        now = {who: before.get(who, level) + served[who] / weights[who] for who in served}
        floor = max(now.values(), default=0.0) - self._lag
        least = min((max(value, floor) for value in now.values()), default=0.0)
        self.received = {who: max(value, floor) - least for who, value in now.items()}
