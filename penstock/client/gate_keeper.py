"""The event loop's part of a gate's leases: new, expired and recalled ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Generic

from penstock.client.gate_lease import Lease, Leases, R
from penstock.model.resources import ResourceKind


class LeaseKeeper(Generic[R]):
    """Use in the gate's loop only; ``give_back`` returns a lease's slot to the agent."""

    def __init__(
        self, leases: Leases[R], loop: asyncio.AbstractEventLoop, give_back: Callable[[Lease[R]], object]
    ) -> None:
        self._leases = leases
        self._loop = loop
        self._give_back = give_back
        self._timer: asyncio.TimerHandle | None = None
        #: A heap of the ends of all leases to come. A lease in use may fall idle before its end.
        self._ends: list[float] = []

    def lent(self, slot: R, until: float) -> Lease[R]:
        """Record the agent's grant of a slot with a lease until ``until``."""
        heappush(self._ends, until)
        if self._ends[0] == until:
            self._look_again()
        return self._leases.lent(slot, until, time.monotonic())

    def give_way(self, kind: ResourceKind) -> None:
        """Return the idle slots of this kind: a monotask that cannot use them asks the agent for one."""
        self._return(self._leases.idle(kind))

    def recall(self, kind: ResourceKind) -> None:
        """Handle the agent's recall: other work waits for this kind."""
        self._return(self._leases.recall((kind,)))

    def recall_all(self) -> None:
        """Return all leases, as the agent is away."""
        self._return(self._leases.recall())

    def _look_again(self) -> None:
        """Set the timer for the next end of a lease."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.0, self._ends[0] - time.monotonic()), self._end)

    def _end(self) -> None:
        self._timer, now = None, time.monotonic()
        while self._ends and self._ends[0] <= now:
            heappop(self._ends)
        self._return(self._leases.expired(now))
        if self._ends:
            self._look_again()

    def _return(self, leases: Iterable[Lease[R]]) -> None:
        for lease in leases:
            self._give_back(lease)
