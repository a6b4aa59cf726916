"""Reservations in a simulated cluster, by the master's own reservation manager and plan follower (Rayon §5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from master.core import Cluster
from master.reservations.follower import Follower
from master.reservations.rdl import Bundle
from master.reservations.reservation_manager import Declined, Entry, ManagerSettings, ReservationManager
from penstock.model import Capacity
from simulator.tasks.clock import Clock

#: Seconds between comparisons of the jobs' promises with their resources.
LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class ReservationSettings:
    """``share`` is the reservable fraction of the cluster (70 % in §6.4); ``lead_s`` is ``reservation_lead_s``."""

    manager: ManagerSettings
    share: float = 1.0
    lead_s: float = 0.5


class Reservations:
    """The reservations of one cluster. ``wake`` plans a round; Unix time is the clock's time."""

    def __init__(
        self,
        settings: ReservationSettings,
        clock: Clock,
        master: Cluster,
        capacities: list[Capacity],
        wake: Callable[[], object],
    ) -> None:
        self.accepted = self.rejected = 0
        #: The longest time in which jobs of a reservation had less than their promise while they had ready tasks.
        self.longest_lack_s = 0.0
        self._manager = ReservationManager(settings.manager)
        self._clock = clock
        self._master = master
        self._wake = wake
        self._lacks_since: dict[str, float] = {}
        self._lead_s = settings.lead_s
        cores = settings.share * sum(one.cores for one in capacities)
        memory_bytes = int(settings.share * sum(one.memory_bytes for one in capacities))
        self._manager.set_capacity(Bundle(cpu_cores=cores, memory_bytes=memory_bytes), clock.now_s)
        self._follower = Follower(self._manager, settings.lead_s)
        master.guarantees.plan = self._follower
        clock.after(LOOK_S, self._look)

    def reserve(self, name: str, rdl: str, user: str) -> str:
        """Reserve for a job and return the reservation's id; empty: it was declined."""
        try:
            kept = self._manager.create(Entry(name, name, user, rdl, self._clock.now_s), self._clock.now_s)
        except Declined as no:
            if no.malformed:
                raise ValueError(f"job {name!r}: rdl: {no}") from None
            self.rejected += 1
            return ""
        self.accepted += 1
        for moment in {piece.start for turn in kept.turns.values() for piece in turn.pieces}:
            self._clock.after(max(0.0, self._manager.unix(moment) - self._lead_s - self._clock.now_s), self._wake)
        return kept.id

    def ended(self, reservation: str) -> None:
        """Delete the reservation of an ended job, which releases the rest of its resources."""
        if reservation in self._manager.entries:
            self._manager.delete(reservation, self._clock.now_s)

    def _look(self) -> None:
        now_s = self._clock.now_s
        self._manager.advance(now_s)
        changes_at = self._follower.changes_at(now_s) if self._manager.placement_delays.all(now_s) else None
        if changes_at is not None and changes_at < now_s + LOOK_S:  # earlier than planned when it was reserved
            self._clock.after(changes_at - now_s, self._wake)
        _, promised = self._master.guarantees.of(now_s)
        due = self._manager.promised(now_s)
        pending = {job.reservation for job in self._master.jobs.values() if job.reservation and job.ready_count}
        lacking = {name for name, one in promised.items() if name in due and name in pending and one.lacking}
        for name in [name for name in self._lacks_since if name not in lacking]:
            del self._lacks_since[name]
        for name in lacking:
            since = self._lacks_since.setdefault(name, now_s)
            self.longest_lack_s = max(self.longest_lack_s, now_s - since)
        self._clock.after(LOOK_S, self._look)
