"""One resource of a node: which jobs wait for it, who is next, how many run at once."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

from agent.queues.debts import Debts
from agent.queues.job_queue import JobQueue
from agent.queues.monotask import COMMANDS, GRANTED, QUEUED, TOGETHER, Monotask, size_rank
from agent.queues.rates import ProcessingRate
from agent.queues.waits import Waits
from penstock.model import KINDS, MOST_BEYOND, ResourceKind

#: Where the kernel knows the order of jobs, what stands ahead starts as long as so many times the slots are in use.
MOST_AHEAD = 16
#: Likewise of disks and the network, whose monotasks get less the more of them there are.
MOST_AHEAD_IO = 2
_MOST_SHOWN = 2**63 - 1  # no integer on the wire is larger


class Resource:
    """A heap of the jobs that wait; each job has a heap of its own. Both delete lazily.

    ``free`` slots are those that nobody holds; small monotasks that run together hold one for each :data:`TOGETHER`.
    It falls below 0 where monotasks were announced as running after a restart, where commands run beyond the slots, and
    where slots are withheld while monotasks hold them.

    ``withheld`` CPU slots are not granted, as promises hold their cores (agent/core/cores.py). Where that leaves none,
    a job that has waited too long for its turn gets one nevertheless, unless a monotask holds one.

    *Beyond the slots* (CPU, where jobs are ranked): the kernel gives processors to commands in the order of their jobs
    (agent/core/ranks.py), so that a command need not wait for a slot that a command of another job holds. One of a job
    behind costs the first little, and uses the processors while the first waits for a disk. So a command starts while
    fewer than :data:`MOST_BEYOND` times the slots are in use. Whatever stands ahead starts as if the commands of jobs
    behind held no slot, monotasks of frameworks, too. No job has more commands at once than there are slots. A job
    that has waited too long for its turn is the first for one grant.

    *Past jobs behind* (disks and the network, where jobs are ranked): the processes of a job behind get little of the
    processors, so a read of a few milliseconds may hold its slot for seconds. A monotask of a job ahead does not wait
    for slots that jobs behind hold, as long as fewer than :data:`MOST_AHEAD_IO` times the slots are in use.
    """

    __slots__ = (
        "aside",
        "bypassing",
        "commands",
        "debts",
        "free",
        "held",
        "index",
        "jobs",
        "keepers",
        "kind",
        "leases",
        "overdue",
        "pending_bytes",
        "queued",
        "rate",
        "slot_seconds",
        "slots",
        "small",
        "starving",
        "taken_back",
        "waits",
        "withheld",
    )  # fmt: skip

    def __init__(self, kind: ResourceKind, slots: int, rate_window_s: float, *, ranked: bool = False) -> None:
        """``ranked``: the kernel knows the order of jobs."""
        of_cpu = kind is ResourceKind.CPU
        self.kind = kind
        self.index = KINDS.index(kind)
        self.slots = slots
        self.rate = ProcessingRate(rate_window_s, slots)
        self.free = slots
        self.withheld = 0
        self.commands: dict[JobQueue, int] | None = {} if ranked and of_cpu else None  # slots that those of a job hold
        self.held: dict[JobQueue, int] | None = {} if ranked and not of_cpu else None  # slots that a job holds
        self.small = 0
        self.bypassing = 0
        self.overdue = 0  # monotasks that run on, though their slots were taken back
        self.taken_back = 0  # slots, in all
        self.debts = Debts(slots)
        self.aside: dict[JobQueue, tuple[float, int, int, JobQueue]] = {}  # of users who owe too much; not in `jobs`
        self.queued = 0
        self.pending_bytes = 0
        self.slot_seconds = 0.0  # slot-time of the monotasks that ended: X of the scheduling efficiency (Ursa §5)
        self.jobs: list[tuple[float, int, int, JobQueue]] = []
        self.starving: list[JobQueue] = []
        self.leases: dict[JobQueue, float] = {}  # until when a job's slots may go on without asking
        self.waits = Waits()
        self.keepers: dict[tuple[int, JobQueue], None] = {}  # sessions that may meanwhile keep theirs idle, in order

    @property
    def running(self) -> int:
        """Slots in use."""
        return self.slots - self.withheld - self.free

    def withhold(self, slots: int) -> None:
        """Grant so many fewer than all slots from now on; those that are held stay held."""
        self.free += self.withheld - slots
        self.withheld = slots

    def enqueue(self, job: JobQueue, monotask: Monotask, stage: str, sequence: int, now: float, known: int) -> None:
        """A monotask waits; ``sequence`` rises, ``known`` is how many jobs there are."""
        self.queued += 1
        monotask.granted_at = now  # as long as it waits: since when
        waiting = job.waiting[self.index]
        if not waiting:
            job.last_grant[self.index] = job.kept_waits.pop(self.index, now) if job.kept_waits else now
            self.line_up(job, sequence, known)
        heappush(waiting, (job.stages.rank(stage), size_rank(self.kind, monotask.input_bytes), sequence, monotask))

    def grant_at_once(self, job: JobQueue, monotask: Monotask, stage: str, now: float, lease_s: float) -> None:
        """It comes alone, nobody waits, and there is room: what :meth:`enqueue` and :meth:`fill` would do."""
        job.stages.rank(stage)
        self.waits.granted += 1
        self.hold(job, monotask, now)
        if lease_s and monotask.session:
            self.leases[job] = monotask.lease_until = now + lease_s

    def line_up(self, job: JobQueue, sequence: int, known: int) -> None:
        """Enter a job that waits; entries from before a priority changed are dropped as they come up."""
        if len(self.jobs) > 64 + 2 * known:  # many changes, nothing granted: shed the outdated ones
            self.jobs = [entry for entry in self.jobs if -entry[0] == entry[3].priority and entry[3] is not job]
            heapify(self.jobs)
        heappush(self.jobs, (-job.priority, job.rank, sequence, job))

    def hold(self, job: JobQueue, monotask: Monotask, now: float) -> None:
        """It runs from now on, whether or not there is room. Whoever decides that counts it (see :class:`Waits`)."""
        monotask.state = GRANTED
        monotask.granted_at = now
        job.begins(now)
        if self.overdue:
            self.debts.held(job.user, monotask, 1)
        if monotask.small:
            self._share(1)
        else:
            self.free -= 1
            if self.held is not None:
                self.held[job] = self.held.get(job, 0) + 1
                job.commands += monotask.session == COMMANDS
            elif self.commands is not None and monotask.session == COMMANDS:
                self.commands[job] = self.commands.get(job, 0) + 1
                job.by_cpu += 1

    def release(self, job: JobQueue, monotask: Monotask, execution_s: float) -> None:
        """It held a slot, or its part of one, for so long."""
        if self.overdue:
            self.debts.held(job.user, monotask, -1)
            self._line_up_again()
        if monotask.small:
            self._share(-1)
            self.slot_seconds += execution_s / TOGETHER
        else:
            self.free += 1
            self.slot_seconds += execution_s
            if self.held is not None:
                _take_one(self.held, job)
                job.commands -= monotask.session == COMMANDS
            elif self.commands is not None and monotask.session == COMMANDS:
                _take_one(self.commands, job)
                job.by_cpu -= 1

    def settle(self, job: JobQueue, monotask: Monotask) -> None:
        """It ran on without its slot, and has ended."""
        self.overdue -= 1
        self.debts.end(job.user, monotask)
        self._line_up_again()

    def fill(self, now: float, granted: list[Monotask], lease_s: float) -> None:
        """Grant while there is room, in order; who has starved goes first."""
        index = self.index
        jobs = self.jobs
        beyond = self.held if self.commands is None else self.commands
        while self.free > 0 or self.small % TOGETHER or beyond or (self.starving and self.running == 0):
            starved = bool(self.starving)
            if starved:
                job = self.starving[0]
            elif jobs:
                job = jobs[0][3]
            else:
                return
            waiting = job.waiting[index]
            while waiting and waiting[0][3].state is not QUEUED:
                heappop(waiting)
            if not waiting or not (starved or -jobs[0][0] == job.priority):
                self._drop_first(starved=starved)  # nothing left to run, or an entry from before its priority changed
                continue
            monotask = waiting[0][3]
            if self.overdue and self.debts.forbid(job.user, monotask):
                self._set_aside(starved=starved)
                continue
            if self.free <= 0 and not monotask.small and not self._has_room_beyond(job, monotask, starved=starved):
                passes = None if starved else self._who_passes(job, monotask)
                if passes is None:
                    return  # small ones behind it wait, too: order comes before a part of a slot
                job, waiting = passes, passes.waiting[index]
                monotask = waiting[0][3]
            heappop(waiting)
            self.queued -= 1
            self.waits.waited(now - monotask.granted_at)
            self.hold(job, monotask, now)
            job.last_grant[index] = now
            granted.append(monotask)
            if starved:
                del self.starving[0]
            elif lease_s and monotask.session:
                self.leases[job] = monotask.lease_until = now + lease_s
            if not waiting and not starved and job is jobs[0][3]:
                heappop(jobs)

    def counts(self, now: float) -> dict[str, Any]:
        """As the status page shows it."""
        return {
            "slots": self.slots,
            "withheld": self.withheld,
            "running": self.running,
            "sharing": self.small,
            "bypassing": self.bypassing,
            "overdue": self.overdue,
            "taken_back": self.taken_back,
            "queued": self.queued,
            "pending_bytes": min(self.pending_bytes, _MOST_SHOWN),
            "rate_bytes_per_s": self.rate.bytes_per_s(now),
            "slot_seconds": self.slot_seconds,
            "granted": self.waits.granted,
            "waits": self.waits.document(),
            "head": self.head(now),
        }

    def head(self, now: float) -> dict[str, Any] | None:
        """Whose turn is next: the job, its first monotask's task, how long the job has waited; None: nobody waits."""
        entries = [entry for entry in self.jobs if -entry[0] == entry[3].priority]
        for job in (*self.starving, *(entry[3] for entry in sorted(entries))):
            waiting = job.waiting[self.index]
            while waiting and waiting[0][3].state is not QUEUED:
                heappop(waiting)
            if waiting:
                return {"job": job.id, "task": waiting[0][3].task, "waits_s": now - job.last_grant[self.index]}
        return None

    def find_starving(self, now: float, wait_max_s: float) -> None:
        """Jobs that have waited too long for their turn: the longest first, before everybody else, one grant each."""
        index = self.index
        oldest = now - wait_max_s
        late = {entry[3] for entry in self.jobs if entry[3].waiting[index] and entry[3].last_grant[index] < oldest}
        self.starving = sorted(late, key=lambda job: (job.last_grant[index], job.rank))

    def recalled_for(self, job: JobQueue, now: float) -> list[JobQueue]:
        """The jobs whose leases end because one that outranks them waits; each is told once."""
        if not self.leases or not any(entry[3].state is QUEUED for entry in job.waiting[self.index]):
            return []
        self.leases = {other: until for other, until in self.leases.items() if until > now}
        recalled = [other for other in self.leases if job.outranks(other)]
        for other in recalled:
            del self.leases[other]
        return recalled

    def keep(self, job: JobQueue, monotask: Monotask, until: float) -> None:
        """It was granted under a lease, and nobody waits: its slot may be kept idle, and for longer."""
        monotask.keep = True
        self.leases[job] = monotask.lease_until = until
        self.keepers[monotask.session, job] = None

    def called_back(self) -> list[tuple[int, JobQueue]]:
        """The sessions, each with its job, that may not keep slots idle any more, as somebody waits; told once.

        Those, too, whose leases are over by our clock: theirs began when they read of them.
        """
        if not self.queued:
            return []
        keepers, self.keepers = self.keepers, {}
        return list(keepers)

    def _drop_first(self, *, starved: bool) -> None:
        if starved:
            del self.starving[0]
        else:
            heappop(self.jobs)

    def _set_aside(self, *, starved: bool) -> None:
        """The first may not be granted before its user owes less."""
        if not starved:
            entry = self.jobs[0]
            self.aside[entry[3]] = entry
        self._drop_first(starved=starved)

    def _line_up_again(self) -> None:
        for entry in self.aside.values():
            heappush(self.jobs, entry)
        self.aside = {}

    def _has_room_beyond(self, job: JobQueue, monotask: Monotask, *, starved: bool) -> bool:
        """Return whether to grant though no slot is free. A job that starves is the first until it has its grant, also
        where promises hold every core."""
        if starved and not self.running:
            return True
        slots = self.slots - self.withheld
        if self.held is not None:
            return self.running < MOST_AHEAD_IO * slots and self._held_behind(self.held, job, starved=starved)
        if not self.commands:
            return False
        if monotask.session == COMMANDS:
            if self.commands.get(job, 0) >= slots and not starved:
                return False
            if self.running < MOST_BEYOND * slots:
                return True
        if self.running >= MOST_AHEAD * slots:
            return False
        return self._held_behind(self.commands, job, starved=starved)

    def _held_behind(self, held: dict[JobQueue, int], job: JobQueue, *, starved: bool) -> bool:
        """Return whether a slot would be free if jobs behind, or all if the job starves, held none of these."""
        return self.free + sum(count for other, count in held.items() if starved or job.outranks(other)) > 0

    def _who_passes(self, first: JobQueue, monotask: Monotask) -> JobQueue | None:
        """Return the next job of which a command may start though ``first`` waits: that has enough commands already."""
        slots = self.slots - self.withheld
        if not self.commands or monotask.session != COMMANDS or self.running >= MOST_BEYOND * slots:
            return None
        for entry in sorted(self.jobs):
            job = entry[3]
            waiting = job.waiting[self.index]
            while waiting and waiting[0][3].state is not QUEUED:
                heappop(waiting)
            if job is first or not waiting or -entry[0] != job.priority:
                continue
            if waiting[0][3].session != COMMANDS:
                return None  # it waits for a slot, in which nothing behind it may be
            if self.commands.get(job, 0) < slots:
                return job
        return None

    def _share(self, change: int) -> None:
        before = -(-self.small // TOGETHER)
        self.small += change
        self.free += before - -(-self.small // TOGETHER)


def _take_one(counts: dict[JobQueue, int], job: JobQueue) -> None:
    counts[job] -= 1
    if not counts[job]:
        del counts[job]
