"""The event loop's part of a gate's leases: new, expired and recalled ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
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

    def lent(self, slot: R, until: float) -> Lease[R]:
        """Record the agent's grant of a slot with a lease until ``until``."""
        if self._timer is None:
            self._look_at(until)
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

    def _look_at(self, until: float) -> None:
        self._timer = self._loop.call_later(max(0.0, until - time.monotonic()), self._end)

    def _end(self) -> None:
        self._timer = None
        back, until = self._leases.expired(time.monotonic())
        self._return(back)
        if until is not None:
            self._look_at(until)

    def _return(self, leases: Iterable[Lease[R]]) -> None:
        for lease in leases:
            self._give_back(lease)
