"""Reservations of a running master: the manager beside the cluster, and a store that records each answer before it is
sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import structlog

from master.core import Cluster
from master.core.node import Node
from master.reservations.agenda import Dropped, Returned
from master.reservations.calls import Answered, answer
from master.reservations.follower import Follower
from master.reservations.rdl import Bundle
from master.reservations.reservation import Reservation
from master.reservations.reservation_manager import Entry, PastRecord, ReservationManager
from master.reservations.turns import Cut, Turn
from master.store.database import StoreError
from master.store.reservations import ReservationRecord, ReservationStore, from_record, to_keep
from penstock.ticks import next_tick_s
from penstock.wire import master_api as api
from penstock.wire.agent_api import Result
from penstock.wire.errors import ErrorCode, RpcError, unavailable
from penstock.wire.reservation_api import OnBehalf

log = structlog.get_logger()
#: Longest time between two updates of the plan (seconds).
_LOOK_S = 1.0
#: The same while nothing is reserved; a call looks first in any case.
_LOOK_IDLE_S = 10.0
#: The calls that request a reservation.
_PROMISES = frozenset({"reserve", "update_reservation"})


@dataclass(frozen=True, slots=True)
class _Before:
    """The earlier state of a reservation, restored when a change cannot be stored."""

    entry: Entry | None
    reservation: Reservation | None
    past: list[PastRecord]


#: An entry, its reservation (None: dropped for good), its turns and cuts; changes replace these objects.
_Kept = tuple[Entry, Reservation | None, tuple[Turn | Cut, ...]]


class ReservationService:
    """:meth:`start`, then calls, then :meth:`close`."""

    def __init__(
        self,
        manager: ReservationManager,
        store: ReservationStore,
        cluster: Cluster,
        *,
        lead_s: float,
        fresh_id: Callable[[], str],
        wake: Callable[[], object],
    ) -> None:
        """``wake`` schedules a round soon."""
        self.manager = manager
        self._store = store
        self._cluster = cluster
        self.follower = Follower(manager, lead_s)
        self._fresh_id = fresh_id
        self._wake = wake
        #: Counts of reservations accepted (also changed), rejected, and no longer kept.
        self.counts: dict[Literal["accepted", "rejected", "missed"], int] = {"accepted": 0, "rejected": 0, "missed": 0}
        self._lock = asyncio.Lock()
        self._accepted = asyncio.Event()  # a call has changed the reservations since the latest update
        self._written: dict[str, _Kept] = {}  # as in the store
        self._expected = Bundle()  # the nodes' capacity before this process started
        self._gathered_at = time.monotonic() + cluster.settings.node_timeout_s
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Restore the reservations, and start updating the plan.

        Raises: StoreError: the reservations cannot be read; a master must not accept new ones beside them.
        """
        found: Bundle | None = await asyncio.to_thread(self._store.capacity)
        self._expected = found or Bundle()
        kept = await asyncio.to_thread(self._store.all, self.manager.settings.step_s)
        past = await asyncio.to_thread(self._store.past)
        self.manager.set_capacity(self._expected, time.time())
        for owner, runs in past.items():
            self.manager.set_past(owner, runs)
        for one in kept:
            self.manager.restore(*from_record(one))
            self._written[one.id] = self._kept(one.id)
        if kept:
            log.info("reservations are kept", reservations=len(kept))
        self._cluster.guarantees.plan = self.follower
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop accepting reservations."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.to_thread(self._store.close)

    async def call(self, asked: OnBehalf) -> Result:
        """Answer a call; its changes are stored when this returns.

        Raises: RpcError: as :func:`master.reservations.calls.answer`; ``unavailable``: the change cannot be stored, and
        nothing has changed.
        """
        async with self._lock:
            fresh = self._fresh_id()
            await self._follow_or_log()
            named = str(asked.params.get("reservation", "")) or fresh
            before = self._before(named)
            answered = self._answer(asked, fresh)
            if answered.changed:
                await self._write(answered, before)
                self.counts["accepted"] += asked.call in _PROMISES
                log.info("reservation", call=asked.call, reservation=answered.changed, user=asked.user)
                self._accepted.set()
                self._wake()
            return answered.answer

    def _before(self, id: str) -> _Before:  # noqa: A002 - the field's name
        one = self.manager.known(id)
        return _Before(self.manager.entries.get(id), one, [] if one is None else self.manager.past(one.owner))

    def _answer(self, asked: OnBehalf, fresh: str) -> Answered:
        try:
            return answer(self.manager, asked, fresh, time.time())
        except RpcError as error:
            self.counts["rejected"] += asked.call in _PROMISES and error.code is ErrorCode.REFUSED
            raise

    # ------------------------------------------------------------ time

    async def _run(self) -> None:
        while True:
            self._accepted.clear()
            try:
                await self._look()
            except Exception as error:  # the root of a task: no error may stop the updates of the plan
                log.error("the plan could not be looked after", exc_info=error)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._until_next_s()):
                    await self._accepted.wait()
            if self.manager.entries:
                self._wake()

    def _until_next_s(self) -> float:
        """Return the time to the next change of promises, or to the next update of the capacity."""
        now, monotonic_s = time.time(), time.monotonic()
        changes_at = self.follower.changes_at(now)
        longest_s = _LOOK_S if self.manager.entries else _LOOK_IDLE_S
        look_s = min(longest_s, next_tick_s(monotonic_s, longest_s) - monotonic_s)
        return look_s if changes_at is None else max(0.01, min(look_s, changes_at - now))

    async def _look(self) -> None:
        async with self._lock:
            await self._follow()

    async def _follow_or_log(self) -> None:
        """Update before a call is answered; changes that cannot be stored are retried with the next update."""
        try:
            await self._follow()
        except StoreError as error:
            log.error("what became of reservations could not be written down", why=str(error))

    async def _follow(self) -> None:
        """Apply the effects of time and of the cluster's changes to the plan; tell the jobs, and store the changes."""
        for each in (*self._follow_capacity(), *self.manager.advance(time.time())):
            self._tell(each)
        kept = {id: self._kept(id) for id in self.manager.entries}  # noqa: A001 - the field's name
        changed = [self._to_keep(id) for id, now in kept.items() if now != self._written.get(id)]  # noqa: A001
        deleted = [id for id in self._written if id not in kept]  # noqa: A001
        past = self._changed_past()
        if changed or deleted or past:
            await asyncio.to_thread(self._store.keep, changed, deleted, past)
        self._written = kept
        self.manager.agenda.quotas.stored(past)
        connected = self.manager.supply.connected
        if connected != self._expected:
            self._expected = connected
            await asyncio.to_thread(self._store.keep_capacity, connected)

    def _follow_capacity(self) -> list[Dropped | Returned]:
        """Update the capacity from the nodes; while they gather after a start, at least the earlier capacity."""
        nodes = self._cluster.nodes.values()
        capacity = _together(nodes)
        drained = _together(node for node in nodes if node.draining is not None)
        if time.monotonic() < self._gathered_at:
            capacity = Bundle.of(map(max, capacity.amounts, self._expected.amounts))
        self.manager.unknown_rates = _unknown_rates(nodes)
        return self.manager.set_capacity(capacity, time.time(), drained)

    def _tell(self, changed: Dropped | Returned) -> None:
        """Tell the jobs of a reservation about its change; without jobs the list shows it to its owner."""
        if isinstance(changed, Returned):
            why = f"its reservation {changed.turn} is promised again"
            log.info("a promise that was dropped is kept again", reservation=changed.turn, owner=changed.owner)
        else:
            self.counts["missed"] += 1
            why = f"its reservation {changed.turn} was dropped: {changed.why}"
            log.warning("a promise cannot be kept", reservation=changed.id, owner=changed.owner, why=changed.why)
        for job in self._cluster.jobs.values():
            if job.reservation == changed.id:
                self._cluster.outbox.propose(job.origin, api.TellWaiting(job=job.job, why=why))

    # ------------------------------------------------------------ the store

    def _kept(self, id: str) -> _Kept:  # noqa: A002 - the field's name
        one = self.manager.known(id)
        return self.manager.entries[id], one, () if one is None else (*one.turns.values(), *one.cut.values())

    def _to_keep(self, id: str) -> ReservationRecord:  # noqa: A002 - the field's name
        return to_keep(self.manager.entries[id], self.manager.known(id), self.manager.settings.step_s)

    def _changed_past(self) -> dict[str, list[PastRecord]]:
        return {owner: self.manager.past(owner) for owner in self.manager.agenda.quotas.changed()}

    async def _write(self, answered: Answered, before: _Before) -> None:
        id, entry = answered.changed, self.manager.entries.get(answered.changed)  # noqa: A001 - the field's name
        changed, past = [self._to_keep(id)] if entry is not None else [], self._changed_past()
        try:
            await asyncio.to_thread(self._store.keep, changed, [] if changed else [id], past)
        except StoreError as error:
            if entry is not None:
                self.manager.delete(id, time.time())
            if before.entry is not None:
                self.manager.restore(before.entry, before.reservation)
            if before.reservation is not None:
                self.manager.set_past(before.reservation.owner, before.past)
            log.error("a reservation could not be written down", why=str(error))
            raise unavailable(f"it could not be written down, so nothing has changed: {error}") from None
        self.manager.agenda.quotas.stored(past)
        self._written.pop(id, None)
        if entry is not None:
            self._written[id] = self._kept(id)


def _together(nodes: Iterable[Node]) -> Bundle:
    """Return the nodes' total capacity; an unreported rate counts as 0."""
    each = [(node.capacity.cores, *_rates(node.availability), node.capacity.memory_bytes) for node in nodes]
    return Bundle.of(map(sum, zip(*each, strict=True))) if each else Bundle()


def _rates(known: api.Availability | None) -> tuple[int, int]:
    """Return a node's disk and network rates in bytes/s; 0: unknown. Reports are rounded down to KiB/s; the next whole
    number is used, so that all of a link can be promised.
    """
    if known is None:
        return 0, 0
    _, disk, network, _ = known.capacity
    return (disk + 1) * 1024 if disk else 0, (network + 1) * 1024 if network else 0


def _unknown_rates(nodes: Iterable[Node]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"disk_bytes_per_s": [], "network_bytes_per_s": []}
    for node in sorted(nodes, key=lambda node: node.name):
        for names, rate in zip(found.values(), _rates(node.availability), strict=True):
            if not rate and node.capacity.memory_bytes:  # otherwise it never registered
                names.append(node.name)
    return found
