"""Slots that a gate holds under a lease: used again and again, by whichever thread wants one, without asking the agent.

The agent's grant says for how long, and that nobody else waits (``keep``). Until then a slot that is given back stays
here, idle, for the next monotask of its kind; the agent hears of all of them at once when the lease is over, or calls
the slot back as soon as anybody waits. Callable from any thread; the clock is an argument.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.model.resources import KINDS, ResourceKind
from penstock.wire.agent_api import Leased

if TYPE_CHECKING:
    from penstock.client.gate_slot import Slot

#: What is larger asks for itself: the agent counts on knowing the work that is under way.
LARGEST_BYTES = 1 << 20


class Lease:
    """A slot at the agent, and what ran in it. ``slot`` is the one that it was granted to."""

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

    def __init__(self, slot: Slot, until: float, now: float, epoch: int) -> None:
        self.slot = slot
        self.until = until
        self.monotasks = 0  # that the agent does not know
        self._epoch = epoch
        self._began = now
        self._first: tuple[bool, float] | None = None
        self._failed = 0
        self._used_bytes = 0
        self._used_s = 0.0

    def lasts(self, now: float, epoch: int) -> bool:
        """Whether it is neither over nor recalled."""
        return now < self.until and epoch == self._epoch

    def begin(self, now: float) -> None:
        """Another monotask begins."""
        self._began = now

    def ended(self, slot: Slot, now: float, *, failed: bool) -> None:
        """The monotask that ran has ended."""
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
        """Of the monotask that the agent knows."""
        return self._first is not None and self._first[0]

    @property
    def first_s(self) -> float | None:
        """How long that took."""
        return None if self._first is None else self._first[1]

    def leased(self, now: float) -> Leased | None:
        """What the agent does not know yet."""
        if not self.monotasks:
            return None
        return Leased(
            monotasks=self.monotasks,
            failed=self._failed,
            input_bytes=self._used_bytes,
            execution_s=self._used_s,
            began_s=max(0.0, now - self._began),
        )


class Leases:
    """Of one gate."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[ResourceKind, list[Lease]] = {kind: [] for kind in KINDS}
        self._waiting: dict[ResourceKind, set[Slot]] = {kind: set() for kind in KINDS}
        self._epoch = dict.fromkeys(KINDS, 0)
        self._outlived: set[Lease] = set()  # whose first monotask has ended, and the agent does not know yet
        self._taken = self._ended = 0

    def lent(self, slot: Slot, until: float, now: float) -> Lease:
        """A grant allows to keep its slot; its own monotask begins now."""
        return Lease(slot, until, now, self._epoch[slot.kind])

    def take(self, slot: Slot, now: float) -> Lease | None:
        """An idle slot for a monotask that begins now; None: it waits from now on, see :meth:`waits_no_more`."""
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

    def waits_no_more(self, slot: Slot) -> None:
        """What :meth:`take` had nothing for has got its answer, or does not want one; any other is nothing."""
        with self._lock:
            self._waiting[slot.kind].discard(slot)

    def give(self, lease: Lease, slot: Slot, now: float, failed: bool | None) -> bool:
        """The monotask in it has ended, or (None) came to nothing; False: give the slot back to the agent."""
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

    def returned(self, lease: Lease) -> None:
        """The slot was given back to the agent."""
        with self._lock:
            self._outlived.discard(lease)

    def recall(self, kinds: Iterable[ResourceKind] = KINDS) -> list[Lease]:
        """Nothing of these kinds is kept any more; returns the idle ones, which are to be given back."""
        with self._lock:
            back: list[Lease] = []
            for kind in kinds:
                self._epoch[kind] += 1
                back += self._idle[kind]
                self._idle[kind].clear()
            return back

    def idle(self, kind: ResourceKind) -> list[Lease]:
        """Take the idle ones of a kind, to be given back: somebody needs one who cannot use them as they are."""
        with self._lock:
            back, self._idle[kind] = self._idle[kind], []
            return back

    def expired(self, now: float) -> tuple[list[Lease], float | None]:
        """The idle ones whose time is over, to be given back, and when to look again."""
        with self._lock:
            back: list[Lease] = []
            left: list[float] = []
            for kind in KINDS:
                idle = self._idle[kind]
                if idle:
                    back += [lease for lease in idle if now >= lease.until]
                    self._idle[kind] = [lease for lease in idle if now < lease.until]
                    left += [lease.until for lease in self._idle[kind]]
            return back, min(left, default=None)

    def counts(self) -> dict[str, int]:
        """What is to be added to the numbers of those monotasks that the agent knows, as it knows them."""
        with self._lock:
            ended, outlived = self._ended, len(self._outlived)
            return {
                "granted": self._taken,
                "released": ended + outlived,
                "held": self._taken - ended - outlived,
                "leased": self._taken,
            }
