"""Slots that a gate keeps under leases.

The agent's grant states the lease's duration, and that no other work waits (``keep``). Until its end a released slot
stays idle here for the next monotask of its kind, in any thread, without asking the agent. The agent is told of all
these monotasks at once, when the lease ends or when it recalls the slot because other work waits.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from penstock.client.monotask_session import SessionMonotask
from penstock.model.resources import KINDS, ResourceKind
from penstock.wire.agent_api import Leased

#: Larger monotasks ask for a slot of their own: the agent relies on knowing the amount of work in progress.
LARGEST_BYTES = 1 << 20


class KeptSlot:
    """A slot that the agent granted to ``holder`` under a lease, and the monotasks that ran in it."""

    __slots__ = ("_began", "_failed", "_used_bytes", "_used_s", "first", "holder", "monotasks")

    def __init__(self, holder: SessionMonotask) -> None:
        self.holder = holder
        self.monotasks = 0  # monotasks that the agent does not know
        self._began = holder.began
        #: Whether the monotask that the agent knows failed, and its run time in seconds; None while it runs.
        self.first: tuple[bool, float | None] = False, None
        self._failed = 0
        self._used_bytes = 0
        self._used_s = 0.0

    def lasts(self, now: float) -> bool:
        """Whether the lease is neither over nor recalled. The session ends it, in the gate's thread."""
        return self.holder.keep and now < self.holder.lease_until

    def begin(self, now: float) -> None:
        """Start another monotask in the slot."""
        self._began = now

    def ended(self, one: SessionMonotask, now: float, *, failed: bool) -> None:
        """Record the end of the running monotask."""
        took_s = max(0.0, now - self._began)
        if one is self.holder:
            self.first = failed, took_s
            return
        self.monotasks += 1
        if failed:
            self._failed += 1
        else:
            self._used_bytes += one.input_bytes
            self._used_s += took_s

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


class IdleSlots:
    """The idle slots of one gate, and the numbers of monotasks that bypassed its loop. Thread-safe.

    ``waiting`` are the session's numbers of waiting monotasks: while one waits, no slot of its kind is kept.
    """

    def __init__(self, waiting: Mapping[ResourceKind, int]) -> None:
        self._waiting = waiting
        self._lock = threading.Lock()
        #: The idle slots of each kind. Without the lock, only their presence may be checked.
        self.of: dict[ResourceKind, list[KeptSlot]] = {kind: [] for kind in KINDS}
        self._expired_at = 0.0  # the leases that ended until then have been looked for
        self._outlived: set[KeptSlot] = set()  # their first monotask ended, which the agent was not told
        self._taken = self._ended = 0
        self._ungated = {"ungated": 0, "released": 0}

    def take(self, one: SessionMonotask, now: float) -> KeptSlot | None:
        """Take an idle slot for a monotask that starts now; None: it must ask the agent."""
        with self._lock:
            idle = self.of[one.kind]
            if not idle or one.input_bytes > LARGEST_BYTES or not idle[-1].lasts(now):
                return None
            kept = idle.pop()
            kept.begin(now)
            self._taken += 1
            return kept

    def give(self, kept: KeptSlot, one: SessionMonotask, now: float, failed: bool | None) -> bool:
        """End the slot's monotask (``failed`` None: it never ran); False: the slot must be returned to the agent.

        ``now`` may be past: a thread may be interrupted after it has looked at the clock, until the lease has ended.
        """
        if failed is not None:
            kept.ended(one, now, failed=failed)
        with self._lock:
            if one is not kept.holder:
                self._ended += 1
            if self._waiting[one.kind] or not kept.lasts(max(now, self._expired_at)):
                return False
            self._outlived.add(kept)
            self.of[one.kind].append(kept)
            return True

    def reclaim(self, kinds: Iterable[ResourceKind] = KINDS) -> list[KeptSlot]:
        """Take all idle slots of these kinds, to be returned to the agent."""
        with self._lock:
            back: list[KeptSlot] = []
            for kind in kinds:
                back += self.of[kind]
                self.of[kind] = []
            return back

    def expired(self, now: float) -> list[KeptSlot]:
        """Take the idle slots whose leases are over, to be returned to the agent."""
        with self._lock:
            self._expired_at = now
            back: list[KeptSlot] = []
            for kind, idle in self.of.items():
                back += [kept for kept in idle if not kept.lasts(now)]
                self.of[kind] = [kept for kept in idle if kept.lasts(now)]
            return back

    def returned(self, kept: KeptSlot) -> None:
        """Record that the slot was returned to the agent."""
        with self._lock:
            self._outlived.discard(kept)

    def count(self, what: str) -> None:
        """Count a monotask that went on (``ungated``) or ended (``released``) without a grant."""
        with self._lock:
            self._ungated[what] += 1

    def counts(self) -> dict[str, int]:
        """Return the corrections to the counts of monotasks that the session knows."""
        with self._lock:
            ended = self._ended + len(self._outlived)
            return {
                "granted": self._taken,
                "ungated": self._ungated["ungated"],
                "released": self._ungated["released"] + ended,
                "held": self._taken - ended,
                "leased": self._taken,
            }
