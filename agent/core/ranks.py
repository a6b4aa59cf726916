"""The order of jobs as weights of their cgroups: the first gets the processors that it can use, the next the rest.

Linux divides a host equally between processes, so that jobs of like size all end last. Here jobs that were promised no
processor are ranked, and neighbours in rank stand a factor of :data:`STEP` apart in ``cpu.weight``. That is near strict
priority, and work-conserving: a job that waits for a disk leaves the processor to the next; the last is never at zero.

A promise is not outranked: all ranked containers together weigh what the cores that nobody was promised weigh, so that
who was promised a core has it beside any number of ranked jobs (agent/core/confinement.py, WEIGHT_PER_CORE).
Opportunistic work is below every rank (``cpu.idle``). Nobody waits for ever: a job that has not been the first for
``job_wait_max_s`` is so until the next sample; such turns take a tenth of the time at most.

On disks the containers of the first job weigh what regular ones weigh, those of the second a sixteenth, the others
less; on the network they go first, where the rate of the link is known (:mod:`agent.core.confinement`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from agent.core.confinement import LAST_RANK, UNPROMISED_WEIGHT, WEIGHT_PER_CORE
from agent.core.instructions import Confine, Instruction, Renice
from agent.core.records import ContainerRecord, ContainerState, Job, Session, confinement_of
from agent.core.snapshot import Snapshot

#: Between the weights of neighbours in rank: what twelve steps of nice are, too (kernel/sched/core.c: 1.25 each).
STEP = 16
#: Steps of nice that are a factor of :data:`STEP`, and the range in which ranks move (sched(7): 1.25 for each step).
NICE_STEP, NICE_FIRST, NICE_LAST = 12, -10, 15
#: Of opportunistic work. Where the kernel weighs sessions its policy has no effect between them: then this is a factor
#: of 2.4 below the last rank.
NICE_OPPORTUNISTIC = 19
#: Of what the cores that nobody was promised weigh: the kernel divides in slices, and no promise shall be short of one.
UNPROMISED_SHARE = 0.95
#: Of the weight of all cores, what ranked containers weigh at least, where every core is promised.
LEAST_SHARE = 0.02
#: A job sinks by one queue when it has used this many CPU seconds, twice as many, four times … (LAS_MQ §3.2).
FIRST_QUEUE_S = 0.5
#: Between two turns of jobs that have waited too long lie so many times the length of one.
TURNS_APART = 10
#: A turn ends with the next sample, which may come a little early, and with no ranking that is much before it.
_TURN = 0.9
#: Ends of containers lead to no more than twenty rankings a second.
_AGAIN_S = 0.05
#: A weight is not raised for less. It falls at once: promises depend on it.
_WORTH_WRITING = 1.25


#: Why a job has its rank, in words for people.
BY_TURN = "it was not the first for long, and is for one sample"
BY_MASTER = "in the master's order"
BY_USE = "no job of the master: among its jobs by CPU time"
BY_PRIORITY = "by priority, queue and arrival"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a job stands on this node. ``rank`` is 0 for the first; ``cpu_s`` is what it has used here so far."""

    job: str
    rank: int
    weight: int
    cpu_s: float
    queue: int
    containers: int
    why: str


@dataclass(slots=True)
class _Ranked:
    """A job, or a container of no job, with its containers that are ranked."""

    job: str
    is_job: bool
    priority: float
    place: int
    cpu_s: float
    containers: list[ContainerRecord]

    @property
    def queue(self) -> int:
        return queue_of(self.cpu_s)

    @property
    def key(self) -> tuple[float, int, int]:
        return (-self.priority, self.queue, self.place)


def queue_of(cpu_s: float) -> int:
    """The queue of a job that has used so many CPU seconds: 0 is the first."""
    return 0 if cpu_s < FIRST_QUEUE_S else 1 + int(math.log2(cpu_s / FIRST_QUEUE_S))


def merge(ranked: list[_Ranked]) -> list[_Ranked]:
    """Put each container of no job behind as many of the master's jobs as have used no more CPU time, by queues.

    A priority of the master is a place among its jobs, and tells nothing of other work. The size of such a container is
    not known, so what it has used decides (LAS). Jobs among themselves stay in the master's order, and containers in
    theirs. Where the master's order is by CPU time alone, all are in that order.
    """
    jobs = [each for each in ranked if each.is_job]
    queues = sorted(each.queue for each in jobs)
    places = [(place, 1, each) for place, each in enumerate(jobs)]
    places += [(bisect_right(queues, each.queue), 0, each) for each in ranked if not each.is_job]
    return [each for _, _, each in sorted(places, key=lambda one: one[:2])]


def nice_of(rank: int, jobs: int) -> int:
    """The nice value of a job's processes where no cpu controller weighs its containers.

    The first of several jobs is raised by what the others are lowered, as far as :data:`NICE_FIRST`: all together weigh
    what as many jobs would weigh by plain Linux, so that other work on the host gets as much as it would without ranks.
    """
    first = max(NICE_FIRST, -round(math.log(jobs, 1.25)))
    return min(NICE_LAST, first + NICE_STEP * rank)


def unpromised_weight(cores: float, promised_cores: float) -> int:
    """Return the weight of all work together that was promised no core, on a node where so many cores are promised."""
    unpromised = max(UNPROMISED_SHARE * (cores - promised_cores), LEAST_SHARE * cores)
    return round(WEIGHT_PER_CORE * unpromised)


def divide(total: int, counts: Iterable[int]) -> list[int]:
    """Divide a weight among jobs in the order of their ranks; ``counts`` has the number of containers of each.

    Neighbours are a factor of :data:`STEP` apart as long as each container weighs 1 at least; the first has what the
    others leave of ``total``.
    """
    weights = []
    part, first = float(total), 0
    for count in counts:
        weights.append(max(count, round(part)))
        first = first or count
        part /= STEP
    if weights:
        weights[0] = max(first, total - sum(weights[1:]))
    return weights


class Ranks:
    """Which job stands where, and what its containers weigh."""

    def __init__(self, cores: float, *, has_master: bool = False) -> None:
        """``has_master``: priorities of jobs are the master's order, in which a container of no job has none."""
        self.standings: dict[str, Standing] = {}
        self.cpu_s: dict[str, float] = {}  # by job: CPU seconds of its containers, promised and opportunistic ones too
        self._cores = cores
        self._has_master = has_master
        self._used_s: dict[str, float] = {}  # by job: CPU seconds of its containers that have ended
        self._counted_s: dict[str, float] = {}  # by container: what ``cpu_s`` has of it
        self._job_of: dict[str, str] = {}  # container → its job
        self._told: set[str] = set()  # containers of which the kernel was told something by this agent
        self._adopted: dict[str, int] = {}  # container → its first process
        self._first_at: dict[str, float] = {}  # by job: when it was the first, or came
        self._turn = ""  # the job whose turn it is, as it has waited too long
        self._turn_until = 0.0
        self._turns_from = 0.0  # no turn is given before
        self._ranked_at = -math.inf
        self.due = True  # something has happened since

    def moved_on(self, snapshot: Snapshot) -> bool:
        """Whether to rank anew at a sample. Where nothing ran and nothing has happened, no job moved on and none
        waits: ranking takes 15 µs for each container."""
        uses, counted_s = snapshot.containers, self._counted_s
        return self.due or any(use.cpu_seconds != counted_s.get(name) for name, use in uses.items())

    def knows(self, record: ContainerRecord) -> bool:
        """Whether its job has a rank already."""
        return (record.job or self.job_of(record.container)) in self.standings

    def first_weight(self, record: ContainerRecord) -> int:
        """Of one that is to be started: a part of its job's; all, until its job is ranked. 0: it gets no rank.

        Its rank on disks and the network it has from now on.
        """
        self._told.add(record.container)
        if record.opportunistic or record.promised_cores:
            return 0
        standing = self.standings.get(record.job)
        if standing is None:
            return round(WEIGHT_PER_CORE * self._cores)
        record.rank = min(standing.rank, LAST_RANK)
        return max(1, standing.weight // (standing.containers + 1))

    def described(self, record: ContainerRecord) -> dict[str, float | int | str] | None:
        """What the status says of a container that has a rank: 1 is the first."""
        job = record.job or self.job_of(record.container)
        standing = self.described_job(job)
        if standing is None or not record.rank_weight or record.ended is not None:
            return None
        return {"job": job, **standing, "weight": record.rank_weight, "nice": record.nice}

    def described_job(self, job: str) -> dict[str, float | int | str] | None:
        """What the status says of a job that has a rank: 1 is the first; ``weight`` is that of all its containers."""
        standing = self.standings.get(job)
        if standing is None:
            return None
        return {
            "rank": standing.rank + 1, "of": len(self.standings), "cpu_s": round(standing.cpu_s, 3),
            "queue": standing.queue + 1, "weight": standing.weight, "why": standing.why,
        }  # fmt: skip

    def renice(self, record: ContainerRecord) -> Renice:
        """A process that was adopted, and that its user had lowered, gets no better nice value than it had."""
        nice = max(record.nice, record.nice_before) if record.nice_before > 0 else record.nice
        return Renice(record.container, record.pid, nice, record.adopted, self.apart(record))

    def reclassed(self, record: ContainerRecord) -> Renice:
        """The same of one that runs as opportunistic work from now on, or, as it was promoted, no longer."""
        if record.opportunistic:
            return replace(self.renice(record), nice=NICE_OPPORTUNISTIC, opportunistic=True)
        return replace(self.renice(record), opportunistic=False)

    def apart(self, record: ContainerRecord) -> frozenset[int]:
        """The first processes of other adopted containers: they may descend from one of this container."""
        return frozenset(pid for container, pid in self._adopted.items() if container != record.container)

    def job_of(self, container: str) -> str:
        """The job whose rank a container has: its own name where it belongs to none."""
        return self._job_of.get(container, container)

    def ended(self, record: ContainerRecord, cpu_s: float, now: float) -> bool:
        """Keep its CPU time as its job's, at once; return whether to rank anew before the next sample.

        That is where a job ends that was among the few first ones whose weights differ: all behind them have the least
        weight (:func:`divide`), so that nobody would be the first.
        """
        standing = self.standings.get(record.job or self.job_of(record.container))
        self.keep(record, cpu_s)
        if standing is None or standing.containers > 1 or standing.weight <= 1 or len(self.standings) <= 2:
            return False
        return now - self._ranked_at >= _AGAIN_S

    def keep(self, record: ContainerRecord, cpu_s: float) -> None:
        """Count what a container has used in all as its job's. It has ended, or leaves the job."""
        job = self._job_of.pop(record.container, record.job)
        counted_s = self._counted_s.pop(record.container, 0.0)
        if job:
            used_s = max(cpu_s, counted_s)  # a container of which the end was not seen has used what was sampled
            self._used_s[job] = self._used_s.get(job, 0.0) + used_s
            self.cpu_s[job] = self.cpu_s.get(job, 0.0) + used_s - counted_s

    def forget(self, job: str) -> None:
        """Drop the CPU time of a job that is over."""
        self._used_s.pop(job, None)
        self.cpu_s.pop(job, None)

    def rank(
        self,
        live: Collection[ContainerRecord],
        jobs: Mapping[str, Job],
        sessions: Iterable[Session],
        snapshot: Snapshot | None,
        now: float,
        wait_max_s: float,
    ) -> list[Instruction]:
        """Rank all jobs; set the weights of their containers, and tell the kernel of those that have changed.

        First come the larger priorities (the master's order, where there is one), then those who have used less CPU
        time, by queues of LAS_MQ, and inside a queue those who came first. :func:`merge` says where a container of no
        job stands in the master's order.
        """
        self._ranked_at, self.due = now, False
        self._assign(live, jobs, sessions)
        self._told &= {record.container for record in live}
        self._adopted = {record.container: record.pid for record in live if record.adopted and record.pid}
        kept = {record.job for record in live}  # a job that is over still counts what its containers use
        self._used_s = {job: used_s for job, used_s in self._used_s.items() if job in jobs or job in kept}
        ranked = self._collect(live, jobs, snapshot)
        ranked.sort(key=lambda each: each.key)
        if self._has_master:
            ranked = merge(ranked)
        self._give_turn(ranked, snapshot, now, wait_max_s)
        promised = sum(record.promised_cores for record in live if not record.opportunistic)
        weights = divide(unpromised_weight(self._cores, promised), (len(each.containers) for each in ranked))
        self.standings = {}
        changed: list[ContainerRecord] = []
        for rank, (each, weight) in enumerate(zip(ranked, weights, strict=True)):
            count, why = len(each.containers), self._why(each)
            self.standings[each.job] = Standing(each.job, rank, weight, each.cpu_s, each.queue, count, why)
            changed += self._share(each.containers, weight, nice_of(rank, len(ranked)), min(rank, LAST_RANK))
        return self._renice_promised(live, nice_of(0, max(1, len(ranked)))) + [
            instruction
            for record in changed
            if record.state is not ContainerState.STOPPING
            for instruction in (
                Confine(record.container, confinement_of(record)),
                self.renice(record),
            )
        ]

    def _why(self, ranked: _Ranked) -> str:
        if ranked.job == self._turn:
            return BY_TURN
        if not self._has_master:
            return BY_PRIORITY
        return BY_MASTER if ranked.is_job else BY_USE

    def _renice_promised(self, live: Collection[ContainerRecord], nice: int) -> list[Instruction]:
        """What was promised cores is not outranked where no cpu controller protects it: it has the first's value."""
        promised = [record for record in live if record.promised_cores and not record.opportunistic]
        changed = [record for record in promised if record.pid and record.nice != nice]
        for record in changed:
            record.nice = nice
        return [self.renice(record) for record in changed if record.state is not ContainerState.STOPPING]

    def _give_turn(self, ranked: list[_Ranked], snapshot: Snapshot | None, now: float, wait_max_s: float) -> None:
        """Move the job that has waited longest to the front, if it has waited too long."""
        self._first_at = {each.job: self._first_at.get(each.job, now) for each in ranked}
        if not ranked:
            return
        if now >= self._turns_from:
            longest = min(ranked, key=lambda each: self._first_at[each.job])
            waited_s = now - self._first_at[longest.job]
            self._turn = longest.job if longest is not ranked[0] and waited_s >= wait_max_s else ""
            if self._turn:
                tick_s = snapshot.interval_s if snapshot is not None else 1.0
                self._turns_from = now + TURNS_APART * tick_s
                self._turn_until = now + _TURN * tick_s
        elif self._turn and now >= self._turn_until:
            self._turn = ""  # it has had it
        ranked.sort(key=lambda each: each.job != self._turn)
        self._first_at[ranked[0].job] = now

    def _assign(self, live: Collection[ContainerRecord], jobs: Mapping[str, Job], sessions: Iterable[Session]) -> None:
        """A container belongs to the job that it was placed for, or that a process in it has registered."""
        inside = {session.container: min(session.jobs) for session in sessions if session.container and session.jobs}
        for record in live:
            job = record.job or inside.get(record.container, "")
            if record.job or (job in jobs and jobs[job].record.user == record.user):
                self._job_of[record.container] = job
            elif self.job_of(record.container) not in jobs:
                self._job_of.pop(record.container, None)  # what outlives its job is one of its own

    def _collect(
        self, live: Collection[ContainerRecord], jobs: Mapping[str, Job], snapshot: Snapshot | None
    ) -> list[_Ranked]:
        uses = snapshot.containers if snapshot is not None else {}
        ranked: dict[str, _Ranked] = {}
        counted_s: dict[str, float] = {}
        for record in live:
            name = self.job_of(record.container)
            each = ranked.get(name)
            if each is None:
                each = ranked[name] = self._new(name, jobs.get(name), record)
            use = uses.get(record.container)
            used_s = use.cpu_seconds if use is not None else self._counted_s.get(record.container, 0.0)
            counted_s[record.container] = used_s
            each.cpu_s += used_s
            if not record.opportunistic and not record.promised_cores:
                each.containers.append(record)
        self._counted_s = counted_s
        self.cpu_s = self._used_s | {each.job: each.cpu_s for each in ranked.values()}
        return [each for each in ranked.values() if each.containers]

    def _share(self, containers: list[ContainerRecord], weight: int, nice: int, rank: int) -> list[ContainerRecord]:
        """A job's weight among its containers, in proportion to what they asked for (``cpu_weight``)."""
        asked = [record.limits.cpu_weight or UNPROMISED_WEIGHT for record in containers]
        of, changed = sum(asked), []
        for record, part in zip(containers, asked, strict=True):
            if not record.pid:
                continue  # it is being started with the weight that it has, and ranked when it has started
            own = max(1, weight * part // of)
            before = record.rank_weight
            moved = record.container not in self._told or own < before or own > _WORTH_WRITING * before
            if moved or nice != record.nice or rank != record.rank:
                record.rank_weight, record.nice, record.rank = own, nice, rank
                self._told.add(record.container)
                changed.append(record)
        return changed

    def _new(self, name: str, job: Job | None, record: ContainerRecord) -> _Ranked:
        used_s = self._used_s.get(name, 0.0)
        if job is not None:
            return _Ranked(name, True, job.record.priority, job.record.place, used_s, [])
        return _Ranked(name, False, 0.0, record.order, used_s, [])
