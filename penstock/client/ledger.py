"""PURE. A framework's live monotasks at its agent: the client's state that must survive an agent's restart.

A monotask is *queued*, then *granted* (at most once), then ended (exactly once). An agent loses both kinds with the
connection, so that all live monotasks are announced again after a reconnection, granted ones as ``running``. Monotasks
that ended during the outage need no message.

A grant may include a lease: until its end the slot may be passed on to the next queued monotask of its kind without
asking. The monotasks that ended meanwhile are reported in one message when the lease is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import msgspec

from penstock.model.resources import KINDS, ResourceKind
from penstock.model.stages import StageRanks
from penstock.model.work import MonotaskId, MonotaskSpec
from penstock.wire.agent_api import Completion, Leased

_CPU = ResourceKind.CPU


class Outgoing(NamedTuple):
    """The messages to send for one job now: one per list, in this order."""

    submit: list[MonotaskSpec]
    complete: list[Completion]
    cancel: list[MonotaskId]


class Lease(NamedTuple):
    """A granted slot's lease: when it ends, when its current monotask began, and whether the slot may be idle."""

    until: float
    began: float
    keep: bool = False


class MonotaskLedger:
    """The monotasks of one job on one host that have not ended. ``now`` is monotonic time in seconds."""

    def __init__(self) -> None:
        self._specs: dict[MonotaskId, MonotaskSpec] = {}
        self._queued: dict[ResourceKind, set[MonotaskId]] = {kind: set() for kind in KINDS}  # at the agent
        self._order: dict[ResourceKind, list[tuple[int, int, int]]] = {kind: [] for kind in KINDS}  # heaps, lazily
        self._stages = StageRanks()
        self._leases: dict[MonotaskId, Lease] = {}
        self._granted: set[MonotaskId] = set()
        self._unsent: dict[MonotaskId, None] = {}
        self._completed: list[Completion] = []
        self._cancelled: list[MonotaskId] = []
        self._last_id = 0
        self._linked = False

    def __len__(self) -> int:
        return len(self._specs)

    def submit(self, kind: ResourceKind, input_bytes: int, stage: str = "", task: str = "") -> int:
        """Add a monotask and return its id."""
        self._last_id += 1
        spec = MonotaskSpec(id=self._last_id, kind=kind, input_bytes=input_bytes, stage=stage, task=task)
        self._specs[spec.id] = spec
        self._unsent[spec.id] = None
        return self._last_id

    def grant(
        self, ids: Iterable[MonotaskId], now: float = 0.0, lease_s: float = 0.0, keep: bool = False
    ) -> list[MonotaskId]:
        """Record grants; return the monotasks that may start. Ignore grants that crossed a cancellation or repeat."""
        fresh: list[MonotaskId] = []
        if not self._linked:
            return fresh
        for one in ids:
            spec = self._specs.get(one)
            if spec is not None and one not in self._granted and one not in self._unsent:
                self._granted.add(one)
                self._queued[spec.kind].discard(one)
                if lease_s:
                    self._leases[one] = Lease(now + lease_s, now, keep)
                fresh.append(one)
        return fresh

    def kept_until(self, one: MonotaskId) -> float:
        """Return until when a granted slot may be idle in this process; 0 if not at all."""
        lease = self._leases.get(one)
        return lease.until if lease is not None and lease.keep else 0.0

    def recall(self, kind: ResourceKind, idle: bool = False) -> None:
        """End the leases of a kind, or (``idle``) only the right to keep their slots idle."""
        of_kind = [one for one in self._leases if self._specs[one].kind is kind]
        for one in of_kind:
            lease = self._leases.pop(one)
            if idle:
                self._leases[one] = lease._replace(keep=False)

    def pass_on(
        self,
        one: MonotaskId,
        now: float,
        failed: bool = False,
        execution_s: float | None = None,
        leased: Leased | None = None,
    ) -> tuple[MonotaskId, float] | None:
        """End a granted monotask whose lease lasts, and start the next of its kind in the slot.

        ``leased`` describes the monotasks that ran in the slot meanwhile; ``execution_s`` is then the time of the
        first.

        Returns:
            The next monotask and the end of the lease, by which the completion must be reported. None without a lease
            or a successor; nothing is changed then, and the caller must :meth:`complete` the monotask.
        """
        lease = self._leases.get(one)
        if lease is None or now >= lease.until:
            return None
        kind = self._specs[one].kind
        queued, order = self._queued[kind], self._order[kind]
        while order and order[0][2] not in queued:
            heappop(order)
        if not order:
            return None
        then = heappop(order)[2]
        self._remove(one)
        if execution_s is None:
            execution_s = now - lease.began
        self._completed.append(Completion(id=one, failed=failed, then=then, execution_s=execution_s, leased=leased))
        queued.remove(then)
        self._granted.add(then)
        self._leases[then] = Lease(lease.until, now)
        return then, lease.until

    def is_granted(self, one: MonotaskId) -> bool:
        """Whether the monotask was granted and has not ended."""
        return one in self._granted

    def complete(
        self,
        one: MonotaskId,
        failed: bool = False,
        execution_s: float | None = None,
        leased: Leased | None = None,
    ) -> bool:
        """End a granted monotask; return False if it had ended already.

        Raises:
            ValueError: it is still queued.
        """
        if one not in self._specs:
            return False
        if one not in self._granted:
            raise ValueError(f"monotask {one} cannot be completed: it waits for its grant")
        known_to_agent = self._remove(one)
        if known_to_agent:
            self._completed.append(Completion(id=one, failed=failed, execution_s=execution_s, leased=leased))
        return True

    def cancel(self, one: MonotaskId) -> bool:
        """Withdraw a monotask; return False if it had ended already."""
        if one not in self._specs:
            return False
        if self._remove(one):
            self._cancelled.append(one)
        return True

    def refuse(self, ids: Iterable[MonotaskId]) -> list[MonotaskId]:
        """End the monotasks of a submission that the agent refused; return those that had not ended before."""
        ended = [one for one in ids if one in self._specs]
        for one in ended:
            self._remove(one)
        return ended

    def clear(self) -> list[MonotaskId]:
        """End all monotasks without sending anything, as the job or the connection is over; return them."""
        self._forget_outgoing()
        ended = list(self._specs)
        self._specs.clear()
        self._granted.clear()
        self._unsent.clear()
        self._forget_queued()
        return ended

    def unlink(self) -> None:
        """Handle the loss of the connection: the agent has lost this job's monotasks."""
        self._linked = False
        self._forget_outgoing()
        self._forget_queued()

    def link(self) -> None:
        """The agent knows the job (again): announce all live monotasks, in the order of submission."""
        self._linked = True
        self._unsent = dict.fromkeys(self._specs)

    def take(self) -> Outgoing:
        """Take the messages to send now; empty while the agent does not know the job."""
        submit: list[MonotaskSpec] = []
        if not self._linked:
            return Outgoing(submit, [], [])
        if self._unsent:
            for one in self._unsent:
                spec = self._specs[one]
                if one in self._granted:
                    submit.append(msgspec.structs.replace(spec, running=True))
                else:
                    self._line_up(spec)
                    submit.append(spec)
            self._unsent.clear()
        out = Outgoing(submit, self._completed, self._cancelled)
        self._completed, self._cancelled = [], []
        return out

    def _remove(self, one: MonotaskId) -> bool:
        """Remove a monotask; return whether the agent must be told, as it knows or is about to know of it."""
        spec = self._specs.pop(one)
        if one in self._granted:
            self._granted.remove(one)
            self._leases.pop(one, None)
        else:
            self._queued[spec.kind].discard(one)
        if one in self._unsent:
            del self._unsent[one]
            return False
        return self._linked

    def _line_up(self, spec: MonotaskSpec) -> None:
        """Queue in the agent's order (Ursa §4.2.3): by stage of appearance; larger first on CPUs, smaller elsewhere."""
        queued, order = self._queued[spec.kind], self._order[spec.kind]
        assert isinstance(spec.id, int)
        if len(order) > 64 + 2 * len(queued):  # most entries are of monotasks granted long ago
            order[:] = [entry for entry in order if entry[2] in queued]
            heapify(order)
        queued.add(spec.id)
        stage = self._stages.rank(spec.stage)
        heappush(order, (stage, -spec.input_bytes if spec.kind is _CPU else spec.input_bytes, spec.id))

    def _forget_queued(self) -> None:
        self._leases.clear()
        for kind in KINDS:
            self._queued[kind].clear()
            self._order[kind].clear()

    def _forget_outgoing(self) -> None:
        self._completed = []
        self._cancelled = []
