"""Slots that a gate holds under a lease, used by any of its threads again and again without asking the agent.

The agent's grant states the lease's duration, and that no other work waits (``keep``). Until its end a released slot
stays here, idle, for the next monotask of its kind. The agent is told of all these monotasks at once, when the lease
ends or when it recalls the slot because other work waits. Thread-safe; the clock is an argument.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from penstock.model.resources import KINDS, ResourceKind
from penstock.wire.agent_api import Leased

#: Larger monotasks ask for a slot of their own: the agent relies on knowing the amount of work in progress.
LARGEST_BYTES = 1 << 20


class Request(Protocol):
    """A monotask as leases see it; compared by identity."""

    @property
    def kind(self) -> ResourceKind:
        """The resource that it needs."""
        ...

    @property
    def input_bytes(self) -> int:
        """Its amount of work."""
        ...


R = TypeVar("R", bound=Request)


class Lease(Generic[R]):
    """A slot at the agent and the monotasks that ran in it. The agent granted it to ``slot``."""

    __slots__ = (
        "_began",
        "_epoch",
        "_failed",
        "_first",
        "_used_bytes",
        "_used_s",
        "monotasks",
        "slot",
        "until",
    )

    def __init__(self, slot: R, until: float, now: float, epoch: int) -> None:
        self.slot = slot
        self.until = until
        self.monotasks = 0  # monotasks that the agent does not know
        self._epoch = epoch
        self._began = now
        self._first: tuple[bool, float] | None = None
        self._failed = 0
        self._used_bytes = 0
        self._used_s = 0.0

    def lasts(self, now: float, epoch: int) -> bool:
        """Whether the lease is neither over nor recalled."""
        return now < self.until and epoch == self._epoch

    def begin(self, now: float) -> None:
        """Start another monotask in the slot."""
        self._began = now

    def ended(self, slot: R, now: float, *, failed: bool) -> None:
        """Record the end of the running monotask."""
        took_s = max(0.0, now - self._began)
        if slot is self.slot:
            self._first = failed, took_s
            return
        self.monotasks += 1
        if failed:
            self._failed += 1
        else:
            self._used_bytes += slot.input_bytes
            self._used_s += took_s

    @property
    def first_failed(self) -> bool:
        """Whether the monotask that the agent knows failed."""
        return self._first is not None and self._first[0]

    @property
    def first_s(self) -> float | None:
        """The run time of the monotask that the agent knows, in seconds; None while it runs."""
        return None if self._first is None else self._first[1]

    def leased(self, now: float) -> Leased | None:
        """Return the report about the monotasks that the agent does not know; None without any."""
        if not self.monotasks:
            return None
        return Leased(
            monotasks=self.monotasks,
            failed=self._failed,
            input_bytes=self._used_bytes,
            execution_s=self._used_s,
            began_s=max(0.0, now - self._began),
        )


class Leases(Generic[R]):
    """The leases of one gate."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[ResourceKind, list[Lease[R]]] = {kind: [] for kind in KINDS}
        self._waiting: dict[ResourceKind, set[R]] = {kind: set() for kind in KINDS}
        self._epoch = dict.fromkeys(KINDS, 0)
        self._outlived: set[Lease[R]] = set()  # leases whose first monotask ended, unknown to the agent yet
        self._taken = self._ended = 0

    def lent(self, slot: R, until: float, now: float) -> Lease[R]:
        """Return a new lease for a granted slot, whose monotask starts now."""
        return Lease(slot, until, now, self._epoch[slot.kind])

    def take(self, slot: R, now: float) -> Lease[R] | None:
        """Take an idle slot for a monotask that starts now; None: it waits, see :meth:`waits_no_more`."""
        kind = slot.kind
        with self._lock:
            idle = self._idle[kind]
            if idle and slot.input_bytes <= LARGEST_BYTES and idle[-1].lasts(now, self._epoch[kind]):
                lease = idle.pop()
                lease.begin(now)
                self._taken += 1
                return lease
            self._waiting[kind].add(slot)
            return None

    def waits_no_more(self, slot: R) -> None:
        """Forget a monotask that :meth:`take` left waiting; no effect for others."""
        with self._lock:
            self._waiting[slot.kind].discard(slot)

    def give(self, lease: Lease[R], slot: R, now: float, failed: bool | None) -> bool:
        """End the slot's monotask (``failed`` None: it never ran); False: the slot must be returned to the agent."""
        if failed is not None:
            lease.ended(slot, now, failed=failed)
        kind = slot.kind
        with self._lock:
            if slot is not lease.slot:
                self._ended += 1
            if self._waiting[kind] or not lease.lasts(now, self._epoch[kind]):
                return False
            self._outlived.add(lease)
            self._idle[kind].append(lease)
            return True

    def returned(self, lease: Lease[R]) -> None:
        """Record that the slot was returned to the agent."""
        with self._lock:
            self._outlived.discard(lease)

    def recall(self, kinds: Iterable[ResourceKind] = KINDS) -> list[Lease[R]]:
        """End all leases of these kinds; return the idle ones, to be given back."""
        with self._lock:
            back: list[Lease[R]] = []
            for kind in kinds:
                self._epoch[kind] += 1
                back += self._idle[kind]
                self._idle[kind].clear()
            return back

    def idle(self, kind: ResourceKind) -> list[Lease[R]]:
        """Take the idle slots of a kind, to be given back for a monotask that cannot use them."""
        with self._lock:
            back, self._idle[kind] = self._idle[kind], []
            return back

    def expired(self, now: float) -> list[Lease[R]]:
        """Take the expired idle slots, to be given back."""
        with self._lock:
            back: list[Lease[R]] = []
            for kind in KINDS:
                idle = self._idle[kind]
                if idle:
                    back += [lease for lease in idle if now >= lease.until]
                    self._idle[kind] = [lease for lease in idle if now < lease.until]
            return back

    def counts(self) -> dict[str, int]:
        """Return the corrections to the counts of monotasks that the agent knows."""
        with self._lock:
            ended, outlived = self._ended, len(self._outlived)
            return {
                "granted": self._taken,
                "released": ended + outlived,
                "held": self._taken - ended - outlived,
                "leased": self._taken,
            }
