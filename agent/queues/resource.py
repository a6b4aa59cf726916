"""One resource of a node: the jobs that wait for it, their order, and the number of slots in use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import InitVar, dataclass, field
from heapq import heapify, heappop, heappush

from agent.queues.counts import QueueCounts, QueueHead
from agent.queues.debts import Debts
from agent.queues.job_queue import JobQueue
from agent.queues.monotask import COMMANDS, GRANT, GRANTED, QUEUED, TOGETHER, Monotask, size_rank
from agent.queues.rates import ProcessingRate
from agent.queues.wait_histogram import WaitHistogram
from penstock.model import KINDS, MOST_BEYOND, ResourceKind

#: Where the kernel schedules by job rank, a job ahead may start work up to this multiple of the slots.
MOST_AHEAD = 16
#: The same for disks and the network: there, more monotasks at once means less throughput for each. With 2, an early
#: read of eight jobs that began together waited for those of two others (docs/benchmarks/demo.md).
MOST_AHEAD_IO = 4
_MOST_SHOWN = 2**63 - 1  # the largest integer on the wire


@dataclass(eq=False, slots=True)
class Resource:
    """A heap of waiting jobs; each job has a heap of its own monotasks. Both delete lazily.

    ``free`` counts unheld slots; small monotasks that run together hold one slot for each :data:`TOGETHER`. ``free``
    falls below 0 where monotasks were announced as running after a restart, where commands run beyond the slots, and
    where slots are withheld while monotasks hold them.

    ``withheld`` CPU slots are not granted, because promises hold their cores (agent/core/cores.py). If that leaves
    none, a starving job gets a slot nevertheless, unless a monotask holds one.

    *Beyond the slots* (CPU, where jobs are ranked): the kernel gives processors to commands in the order of their jobs
    (agent/core/ranks.py), so a command need not wait for a slot held by a command of another job. A command of a job
    behind costs the job ahead little, and uses the processors while that one waits for a disk. So a command starts
    while its job and those ahead use fewer than :data:`MOST_BEYOND` times the slots. Work of a job ahead, including
    monotasks of frameworks, starts as if the commands of jobs behind held no slot. No job has more commands at once
    than there are slots. A starving job comes first for one grant.

    *Past jobs behind* (disks and the network, where jobs are ranked): the processes of a job behind get little CPU
    time, so a read of a few milliseconds may hold its slot for seconds. A monotask of a job ahead does not wait for
    slots held by jobs behind, while fewer than :data:`MOST_AHEAD_IO` times the slots are in use.
    """

    kind: ResourceKind
    slots: int
    rate_window_s: InitVar[float]
    ranked: InitVar[bool] = False  # whether the kernel schedules by job rank
    index: int = field(init=False)
    rate: ProcessingRate = field(init=False)
    free: int = field(init=False)
    withheld: int = 0
    commands: dict[JobQueue, int] | None = None  # slots held by each job's commands
    held: dict[JobQueue, int] | None = None  # slots held by each job
    small: int = 0
    bypassing: int = 0
    overdue: int = 0  # monotasks that run on after their slots were taken back
    taken_back: int = 0  # total number of slots taken back
    debts: Debts = field(init=False)
    # jobs of users who owe too much; not in `jobs`
    aside: dict[JobQueue, tuple[float, int, int, JobQueue]] = field(default_factory=dict)
    queued: int = 0
    pending_bytes: int = 0
    slot_seconds: float = 0.0  # slot-time of the monotasks that ended: X of the scheduling efficiency (Ursa §5)
    jobs: list[tuple[float, int, int, JobQueue]] = field(default_factory=list)
    starving: list[JobQueue] = field(default_factory=list)
    leases: dict[JobQueue, float] = field(default_factory=dict)  # job → end of its lease
    waits: WaitHistogram = field(default_factory=WaitHistogram)
    # sessions that may keep leased slots idle, in order
    keepers: dict[tuple[int, JobQueue], None] = field(default_factory=dict)

    def __post_init__(self, rate_window_s: float, ranked: bool) -> None:
        self.index = KINDS.index(self.kind)
        self.rate = ProcessingRate(rate_window_s, self.slots)
        self.free = self.slots
        self.debts = Debts(self.slots)
        if ranked and self.kind is ResourceKind.CPU:
            self.commands = {}
        elif ranked:
            self.held = {}

    @property
    def running(self) -> int:
        """Return the slots in use."""
        return self.slots - self.withheld - self.free

    @property
    def most_commands(self) -> int:
        """Return how many commands may run at once, even beyond the slots; 0 if commands keep to the slots."""
        return 0 if self.commands is None else MOST_AHEAD * self.slots

    def enqueue(self, job: JobQueue, monotask: Monotask, stage: str, sequence: int, now: float, known: int) -> None:
        """Queue a monotask; ``sequence`` rises with each call, ``known`` is the number of jobs."""
        self.queued += 1
        monotask.granted_at = now  # while queued: the start of the wait
        index = self.index
        waiting = job.waiting[index]
        if not waiting or (waiting[0][3].state is not QUEUED and self.first(job) is None):
            job.last_grant[index] = job.kept_waits.pop(index, now) if job.kept_waits else now
            self.line_up(job, sequence, known)
        elif len(waiting) > job.swept_beyond[index]:  # many were cancelled, or had their slot passed on
            waiting[:] = [entry for entry in waiting if entry[3].state is QUEUED]
            heapify(waiting)
            job.swept_beyond[index] = 64 + 2 * len(waiting)
        heappush(waiting, (job.stages.rank(stage), size_rank(self.kind, monotask.input_bytes), sequence, monotask))

    def first(self, job: JobQueue) -> Monotask | None:
        """Return the job's next monotask; entries before it of monotasks that no longer wait are dropped."""
        waiting = job.waiting[self.index]
        while waiting:
            monotask = waiting[0][3]
            if monotask.state is QUEUED:
                return monotask
            heappop(waiting)
        return None

    def grant_at_once(self, job: JobQueue, monotask: Monotask, stage: str, now: float, lease_s: float) -> None:
        """Grant a lone monotask while nothing waits and a slot is free: short for :meth:`enqueue`, :meth:`fill`."""
        job.stages.rank(stage)
        self.waits.granted += 1
        self.hold(job, monotask, now)
        if lease_s and monotask.session:
            self.leases[job] = monotask.lease_until = now + lease_s

    def line_up(self, job: JobQueue, sequence: int, known: int) -> None:
        """Enter a waiting job; entries with an outdated priority are dropped when they come up."""
        if len(self.jobs) > 64 + 2 * known:  # many changes without a grant: keep one entry of each job that waits
            valid = {entry[3]: entry for entry in self.jobs if -entry[0] == entry[3].priority and entry[3] is not job}
            self.jobs = [entry for other, entry in valid.items() if self.first(other) is not None]
            heapify(self.jobs)
        heappush(self.jobs, (-job.priority, job.rank, sequence, job))

    def hold(self, job: JobQueue, monotask: Monotask, now: float) -> None:
        """Give a monotask a slot, even if none is free. The caller counts the grant (see :class:`WaitHistogram`)."""
        monotask.state = GRANT[monotask.state]
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
        """Take the slot, or part of a slot, that a monotask held for ``execution_s`` seconds."""
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
        """Settle the debt of an overdue monotask that has ended."""
        self.overdue -= 1
        self.debts.end(job.user, monotask)
        self._line_up_again()

    def fill(self, now: float, granted: list[Monotask], lease_s: float) -> None:
        """Grant in order while there is room; starving jobs go first."""
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
            monotask = waiting[0][3] if waiting else None
            if monotask is not None and monotask.state is not QUEUED:
                monotask = self.first(job)
            if monotask is None or not (starved or -jobs[0][0] == job.priority):
                self._drop_first(starved=starved)  # no monotask left, or an entry with an outdated priority
                continue
            if self.overdue and self.debts.forbid(job.user, monotask):
                self._set_aside(starved=starved)
                continue
            shares = monotask.small and self.small % TOGETHER
            if self.free <= 0 and not shares and not self._has_room_beyond(job, monotask, starved=starved):
                passing = None if starved else self._next_past(job, monotask)
                if passing is None:
                    return  # small monotasks behind it wait too: order takes precedence over a free part of a slot
                job, monotask = passing
                waiting = job.waiting[index]
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

    def counts(self, now: float, known: Iterable[JobQueue]) -> QueueCounts:
        """Return the numbers for the status document; ``known`` are all jobs."""
        return QueueCounts(
            slots=self.slots,
            withheld=self.withheld,
            running=self.running,
            sharing=self.small,
            bypassing=self.bypassing,
            overdue=self.overdue,
            taken_back=self.taken_back,
            queued=self.queued,
            pending_bytes=min(self.pending_bytes, _MOST_SHOWN),
            rate_bytes_per_s=self.rate.bytes_per_s(now),
            slot_seconds=self.slot_seconds,
            granted=self.waits.granted,
            waits=self.waits.document(),
            head=self._head(now, known),
        )

    def _head(self, now: float, known: Iterable[JobQueue]) -> QueueHead | None:
        """Return the next job, what it waits for, and the job that holds a slot for longest; None if no job waits."""
        entries = [entry for entry in self.jobs if -entry[0] == entry[3].priority]
        for job in (*self.starving, *(entry[3] for entry in sorted(entries))):
            monotask = self.first(job)
            if monotask is not None:
                waits_s = now - job.last_grant[self.index]
                since, holder = _held_longest(known, self.kind) or (now, "")
                return QueueHead(job=job.id, task=monotask.task, waits_s=waits_s, held_by=holder, held_s=now - since)
        return None

    def find_starving(self, now: float, wait_max_s: float) -> None:
        """Find the jobs that have waited too long for a turn: longest first, each gets one grant before all others."""
        index = self.index
        oldest = now - wait_max_s
        late = {entry[3] for entry in self.jobs if entry[3].last_grant[index] < oldest}
        waiting = [job for job in late if self.first(job) is not None]
        self.starving = sorted(waiting, key=lambda job: (job.last_grant[index], job.rank))

    def recalled_for(self, job: JobQueue, now: float) -> list[JobQueue]:
        """Return the jobs whose leases end because a job that outranks them waits; each is returned once."""
        if not self.leases or self.first(job) is None:
            return []
        self.leases = {other: until for other, until in self.leases.items() if until > now}
        recalled = [other for other in self.leases if job.outranks(other)]
        for other in recalled:
            del self.leases[other]
        return recalled

    def keep(self, job: JobQueue, monotask: Monotask, until: float) -> None:
        """Let the session keep a leased slot idle until ``until``, as no monotask waits."""
        monotask.keep = True
        self.leases[job] = monotask.lease_until = until
        self.keepers[monotask.session, job] = None

    def called_back(self) -> list[tuple[int, JobQueue]]:
        """Return each session, with its job, that may not keep slots idle any more, because a monotask waits; each
        once.

        This includes leases that have ended by the agent's clock: a client's lease starts when the client reads of it.
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
        """Set the first job aside until its user owes less."""
        if not starved:
            entry = self.jobs[0]
            self.aside[entry[3]] = entry
        self._drop_first(starved=starved)

    def _line_up_again(self) -> None:
        for entry in self.aside.values():
            heappush(self.jobs, entry)
        self.aside = {}

    def _has_room_beyond(self, job: JobQueue, monotask: Monotask, *, starved: bool) -> bool:
        """Return whether to grant although no slot is free. A starving job comes first until it has its grant, even
        where promises hold every core.
        """
        if starved and not self.running:
            return True
        slots = self.slots - self.withheld
        if self.held is not None:
            most = MOST_AHEAD_IO * slots
            return self.running < most and self.free + _held_behind(self.held, job, starved=starved) > 0
        if not self.commands or self.running >= MOST_AHEAD * slots:
            return False
        behind = _held_behind(self.commands, job, starved=starved)
        if monotask.session == COMMANDS:
            if self.commands.get(job, 0) >= slots and not starved:
                return False
            if self.running - behind < MOST_BEYOND * slots:
                return True
        return self.free + behind > 0

    def _next_past(self, ahead: JobQueue, monotask: Monotask) -> tuple[JobQueue, Monotask] | None:
        """Return the next job, and its command, that may start while ``ahead``, with its full number of commands,
        waits.
        """
        slots = self.slots - self.withheld
        if not self.commands or monotask.session != COMMANDS or self.running >= MOST_AHEAD * slots:
            return None
        for entry in sorted(self.jobs):
            job = entry[3]
            command = self.first(job)
            if job is ahead or command is None or -entry[0] != job.priority:
                continue
            if command.session != COMMANDS:
                return None  # it waits for a slot, which nothing behind it may take
            if self.commands.get(job, 0) < slots:
                return (job, command) if self._has_room_beyond(job, command, starved=False) else None
        return None

    def _share(self, change: int) -> None:
        before = -(-self.small // TOGETHER)
        self.small += change
        self.free += before - -(-self.small // TOGETHER)


def _held_behind(held: dict[JobQueue, int], job: JobQueue, *, starved: bool) -> int:
    """Return the number of slots in ``held`` of jobs behind this one; of all jobs, if it is ``starved``."""
    return sum(count for other, count in held.items() if starved or job.outranks(other))


def _held_longest(known: Iterable[JobQueue], kind: ResourceKind) -> tuple[float, str] | None:
    """Return since when a slot of this kind has been held for longest, and by which job; None if none is held."""
    held = (
        (monotask.granted_at, job.id)
        for job in known
        if job.running
        for live in job.live.values()
        for monotask in live.values()
        if monotask.kind is kind and monotask.state is GRANTED
    )
    return min(held, default=None)


def _take_one(counts: dict[JobQueue, int], job: JobQueue) -> None:
    counts[job] -= 1
    if not counts[job]:
        del counts[job]
