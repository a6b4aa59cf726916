"""The order of jobs as cgroup weights: the first gets the processors that it can use, the next one the rest.

Linux divides a host equally between processes, so that jobs of similar size all end late. Here jobs are ranked, and
neighbours in rank differ by a factor of 16 in ``cpu.weight``. That is close to strict priority, and work-conserving: a
job that waits for a disk leaves the processor to the next; the last one always gets a little.

Ranks do not affect promises: the weights of all ranks together are that of the unpromised cores, so that a container
has its promised core beside any number of ranked jobs (agent/core/confinement.py, WEIGHT_PER_CORE). A container that
may use more than its promised cores has a part of its job's rank in addition to their weight. Opportunistic work
is below every rank (``cpu.idle``). No job waits for ever: one that has not been the first for ``job_wait_max_s`` is
first until the next sample; such turns take at most a tenth of the time.

Where the master serves tenants by shares, it names each job's tenant and that one's weight. Then this weight is divided
among the tenants that have ranked containers here, and ranks apply among the jobs of each.

On disks, the containers of the first job have the weight of regular ones, those of the second a sixteenth of it, the
others less; on the network they go first, if the rate of the link is known (:mod:`agent.core.confinement`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from msgspec import structs

from agent.core.command_sizes import CommandSizes
from agent.core.confinement import LAST_RANK, UNPROMISED_WEIGHT, WEIGHT_PER_CORE, promised_weight, weight_of
from agent.core.containers import ROOM, Containers
from agent.core.cpu_time_reads import CpuReadSchedule
from agent.core.groups import GroupPlaces
from agent.core.instructions import Instruction, Record, Renice
from agent.core.job_cpu_times import JobCpuTimes
from agent.core.membership import Membership
from agent.core.node_resources import NodeResources
from agent.core.rank_order import (
    BY_MASTER,
    BY_PRIORITY,
    BY_TURN,
    BY_USE,
    ContainerRank,
    JobRank,
    Ranked,
    Standing,
    TenantHere,
    by_tenant,
    merge,
)
from agent.core.rank_turns import StarvingTurns
from agent.core.rank_weights import NICE_OPPORTUNISTIC, apportion, divide, nice_of, unpromised_weight
from agent.core.records import ContainerRecord, ContainerState
from agent.core.settings import NodeSettings
from penstock.model.units import counted, format_duration

#: The minimum time between rankings that ends of containers cause.
_AGAIN_S = 0.05
#: A weight is not raised by less than this factor. It falls at once, because promises depend on it.
_WORTH_WRITING = 1.25


class Ranks:
    """The ranks of the jobs and the weights of their containers."""

    def __init__(
        self,
        settings: NodeSettings,
        members: Membership,
        containers: Containers,
        resources: NodeResources,
        cpu_times: JobCpuTimes,
        sizes: CommandSizes,
    ) -> None:
        self.settings = settings
        self.standings: dict[str, Standing] = {}
        self._members = members
        self._containers = containers
        self._resources = resources
        self._cpu_times = cpu_times
        self._sizes = sizes
        self._weighted: set[str] = set()  # containers whose weights this agent has derived from ranks
        self._adopted: dict[str, int] = {}  # container → its first process
        self._places = GroupPlaces(members, containers, settings.capacity.cores)
        self._starving = StarvingTurns()
        self._turns: dict[str, str] = {}  # tenant → the starving job whose turn it is
        self._ranked_at = -math.inf
        self._ranked_beside_cores = 0.0  # the cores that containers were promised then
        self._orders: dict[str, list[str]] = {}  # tenant → its jobs in their order, without turns
        self._master_orders = False  # whether these are all jobs of the master, each with its own priority
        self.cpu_reads = CpuReadSchedule()
        self.due = True  # an event that may change the order has occurred since the last ranking

    def sampled(self, now: float, *, acted: bool) -> list[Instruction]:
        """Follow a sample, after which the node has ``acted`` or not. Ranking takes 50 µs per container.

        Nothing is ranked if nothing ran and no event occurred. Where the master alone orders the jobs, their CPU time
        is counted, and they are ranked anew if a turn of a starving one begins or ends.
        """
        snapshot = self._resources.snapshot
        if acted or self.due:
            return self.rank(now)
        if snapshot is None or not self._cpu_times.changed(snapshot):
            return []
        if not self._master_orders or self._turns_at(now) != self._turns:
            return self.rank(now)
        return self._count()

    def cpu_times_read(self, now: float) -> list[Instruction]:
        """Follow a look at the CPU time; where the master alone orders the jobs, it decides on what it is told."""
        return self._count() if self._master_orders else self.rank(now)

    def reordered(self, jobs: Collection[str], now: float) -> list[Instruction]:
        """Rank anew if one of these jobs, whose priority or promise has changed, has a container that has started.

        A job that has just come has none yet: it is ranked when its first one has started.
        """
        run = (record for record in self._containers.live.values() if record.pid)
        here = any((record.job or self._cpu_times.job_of(record.container)) in jobs for record in run)
        return self.rank(now) if here else []

    def look(self, now: float, job: str) -> list[Instruction]:
        """Ask for the CPU time of the containers, because a job has come: the last sample may be a second old.

        With its numbers, jobs that began shortly before would go before the new one, though they have run for long.
        Ranked jobs without a container are over: they have a rank until the next ranking.
        """
        run = (record.job or self._cpu_times.job_of(record.container) for record in self._containers.live.values())
        others = any(each != job and each in self.standings for each in run)
        return [*self.cpu_reads.came(job, now)] if others else []

    def look_again(self, now: float) -> list[Instruction]:
        """Ask for the CPU time again, at gaps that double, while the job that came last is not the first here.

        So a job that turns out to be longer than the new one goes behind it within about the time that it has run.
        """
        came = self.standings.get(self.cpu_reads.job)
        return [*self.cpu_reads.again(now, wanted=came is not None and came.rank > 0)]

    def knows(self, record: ContainerRecord) -> bool:
        """Return whether the container's job has a rank already, and a ranked container its weight by that."""
        job = record.job or self._cpu_times.job_of(record.container)
        return job in self.standings and (record.container in self._weighted or not record.ranked)

    def begin(self, record: ContainerRecord, manages: str = "") -> None:
        """Give a starting container its groups, and a part of its job's weight: all until the job is ranked, none if it
        has no rank. ``manages``: the job that it will manage.
        """
        if record.job or manages or self._members.tenants:
            others = record.job in self.standings
            record.join(self._places.of(record, manages=manages, has_others=others))
        if not record.ranked:
            return
        standing = self.standings.get(record.job)
        if standing is None:
            record.set_rank(0, max(1, unpromised_weight(self.settings.capacity.cores, self._promised_cores())), 0)
        else:
            part = record.limits.cpu_weight or UNPROMISED_WEIGHT
            weight = max(1, standing.shared_weight * part // (standing.parts + part))
            record.set_rank(min(standing.rank, LAST_RANK), weight, 0)
            self._weighted.add(record.container)

    def described(self, record: ContainerRecord) -> ContainerRank | None:
        """Return the rank of a container for the status; None: it has none."""
        job = record.job or self._cpu_times.job_of(record.container)
        rank = self.described_job(job)
        if rank is None or not record.ranked or not record.rank_weight or record.ended is not None:
            return None
        weight = weight_of(record.promised_cores, record.limits, record.rank_weight)
        return ContainerRank(**{**structs.asdict(rank), "job": job, "weight": weight, "nice": record.nice})

    def described_job(self, job: str) -> JobRank | None:
        """Return the rank of a job for the status; None: it has none."""
        standing = self.standings.get(job)
        return standing.document(self._cpu_times.cpu_s.get(job, 0.0)) if standing is not None else None

    def renice(self, record: ContainerRecord) -> Renice:
        """Return the nice value to set; an adopted process that its user had lowered is not raised above that."""
        nice = max(record.nice, record.nice_before) if record.nice_before > 0 else record.nice
        return Renice(record.container, record.pid, nice, record.adopted, self.apart(record))

    def reclassed(self, record: ContainerRecord) -> Renice:
        """Return the same for a container that has become opportunistic or been promoted."""
        if record.opportunistic:
            return replace(self.renice(record), nice=NICE_OPPORTUNISTIC, opportunistic=True)
        return replace(self.renice(record), opportunistic=False)

    def apart(self, record: ContainerRecord) -> frozenset[int]:
        """Return the first processes of other adopted containers: they may descend from a process of this one."""
        return frozenset(pid for container, pid in self._adopted.items() if container != record.container)

    def ended(self, record: ContainerRecord, cpu_s: float, now: float) -> bool:
        """Count its CPU time as its job's; return whether to rank anew before the next sample.

        That is so if the job was among the first few, whose weights differ: all behind them have the minimum weight
        (:func:`divide`), so none would be the first.
        """
        standing = self.standings.get(record.job or self._cpu_times.job_of(record.container))
        self._cpu_times.end(record, cpu_s)
        if standing is None or standing.containers > 1 or standing.shared_weight <= 1 or len(self.standings) <= 2:
            return False
        return now - self._ranked_at >= _AGAIN_S

    def make_room(self, now: float) -> list[Instruction]:
        """Rank anew if more cores are promised than at the last ranking: the weights leave too little for them."""
        rose = bool(self.standings) and self._promised_cores() > self._ranked_beside_cores
        return self.rank(now) if rose else []

    def rank(self, now: float) -> list[Instruction]:
        """Rank all jobs; set the weights of their containers, and return instructions for the changed ones.

        First come larger priorities (the master's order, if there is one), then less CPU time, by queues of LAS_MQ,
        then earlier arrival. :func:`merge` places containers without a job in the master's order. Where the master
        serves tenants by shares, each has its part of the weight here, and its jobs are ranked within that.
        """
        live = self._containers.live.values()
        self._ranked_at, self.due = now, False
        instructions = self._count()
        come = self._follow_reservations()
        self._weighted &= {record.container for record in live}
        self._adopted = {record.container: record.pid for record in live if record.adopted and record.pid}
        ranked = self._collect()
        alike = len({each.priority for each in ranked}) < len(ranked)
        self._master_orders = self.settings.has_master and not alike and all(each.is_job for each in ranked)
        ranked.sort(key=lambda each: (-each.priority, each.queue if alike else 0, each.place))
        tenants = self._by_tenant(ranked)
        self._ranked_beside_cores = self._promised_cores()
        promised = self._ranked_beside_cores + sum(each.reserved_cores for each in ranked)
        total = unpromised_weight(self.settings.capacity.cores, promised)
        self.standings = {}
        instructions += self._renice_promised(live, nice_of(0, max(1, len(ranked))))
        instructions += [one for record in come for one in self._changed(record)]
        for tenant, part in zip(tenants, apportion(total, [each.weight for each in tenants]), strict=True):
            share = tenant.weight / (sum(each.weight for each in tenants) or 1.0)
            instructions += self._rank_within(tenant, part, share, len(ranked))
        return instructions

    def _count(self) -> list[Instruction]:
        """Count the CPU time of all jobs; journal the containers whose records that changes."""
        changed = self._cpu_times.count(self._resources.snapshot)
        return [Record(ROOM, record.container, record) for record in changed]

    def _changed(self, record: ContainerRecord, *, weight: bool = True) -> list[Instruction]:
        if record.state is ContainerState.STOPPING:
            return []
        return [record.confine(), self.renice(record)] if weight else [self.renice(record)]

    def _rank_within(self, tenant: TenantHere, total: int, share: float, jobs: int) -> list[Instruction]:
        """Divide a tenant's weight by rank among its jobs; return instructions for the changed containers.

        ``share`` is its part of the weight, and ``jobs`` the number of ranked jobs, of all tenants.
        """
        changed: list[Instruction] = []
        of = len(tenant.jobs)
        weights = divide(total, (len(each.containers) for each in tenant.jobs))
        for rank, (each, by_rank) in enumerate(zip(tenant.jobs, weights, strict=True)):
            weight = by_rank + round(WEIGHT_PER_CORE * each.reserved_cores)
            count, why = len(each.containers), self._why(each)
            if tenant.name:
                why += f", {100 * share:.3g} % of the node for {tenant.name}"
            own = _promised_weight(each.containers)
            parts = [record.limits.cpu_weight or UNPROMISED_WEIGHT for record in each.containers]
            queue = each.queue if each.expected is not None else None
            self.standings[each.job] = Standing(
                each.job, rank, weight + own, queue, count, why, of, tenant.name, own, sum(parts)
            )
            # A job with reserved cores is like containers with promised ones.
            place, nice = (0, nice_of(0, jobs)) if each.reserved_cores else (rank, nice_of(rank, jobs * share))
            place = place if tenant.weight else LAST_RANK
            changed += self._share(each.containers, parts, weight, nice, min(place, LAST_RANK))
        return changed

    def _promised_cores(self) -> float:
        live = self._containers.live.values()
        return sum(record.promised_cores for record in live if not record.opportunistic)

    def _follow_reservations(self) -> list[ContainerRecord]:
        """Note which containers run before their reservation's time; return those whose time has come.

        Before it they are ranked, the last in the master's order, whatever cores their tasks state (Rayon §5.1: work
        that is ahead of its time takes what others leave).
        """
        come = []
        for record in self._containers.live.values():
            job = self._members.jobs.get(self._cpu_times.job_of(record.container))
            was_early, record.early = record.early, job is not None and job.record.reserved_cores == 0
            if was_early and record.promised_cores:
                come.append(record)
        return come

    def _why(self, ranked: Ranked) -> str:
        if ranked.job in self._turns.values():
            return BY_TURN
        why = BY_PRIORITY if not self.settings.has_master else BY_MASTER if ranked.is_job else BY_USE
        if (expected := ranked.expected) is None:
            return why
        left = format_duration(expected.left_s)
        return f"{why}; as {counted(expected.runs, 'earlier run')}, it needs about {left} more"

    def _renice_promised(self, live: Collection[ContainerRecord], nice: int) -> list[Instruction]:
        """Give promised containers the first job's nice value, as no cpu controller protects them."""
        promised = [record for record in live if record.promised_cores and not record.opportunistic]
        changed = [record for record in promised if record.pid and record.nice != nice]
        for record in changed:
            record.set_rank(record.rank, record.rank_weight, nice)
        return [self.renice(record) for record in changed if record.state is not ContainerState.STOPPING]

    def _by_tenant(self, ranked: list[Ranked]) -> list[TenantHere]:
        """Divide the ranked jobs, in their order, by tenants, and give turns to those that starve."""
        tenants = by_tenant(ranked, self._members.tenants)
        for tenant in tenants.values():
            tenant.jobs = merge(tenant.jobs) if self.settings.has_master else tenant.jobs
        self._give_turns(tenants)
        return [*tenants.values()]

    def _give_turns(self, tenants: Mapping[str, TenantHere]) -> None:
        """Move each tenant's longest-waiting job to its front if it starves."""
        self._orders = {name: [each.job for each in tenant.jobs] for name, tenant in tenants.items()}
        self._turns = self._turns_at(self._ranked_at)
        for name, tenant in tenants.items():
            tenant.jobs.sort(key=lambda each: each.job != self._turns[name])

    def _turns_at(self, now: float) -> dict[str, str]:
        snapshot = self._resources.snapshot
        return self._starving.give(
            self._orders,
            now,
            wait_max_s=self.settings.job_wait_max_s,
            tick_s=snapshot.interval_s if snapshot is not None else 1.0,
        )

    def _collect(self) -> list[Ranked]:
        """Return the jobs, and the containers without a job, that have ranked containers."""
        jobs, cpu_s, snapshot = self._members.jobs, self._cpu_times.cpu_s, self._resources.snapshot
        read = snapshot.containers.keys() if snapshot is not None else ()
        ranked: dict[str, Ranked] = {}
        for record in self._containers.live.values():
            name = self._cpu_times.job_of(record.container)
            each = ranked.get(name)
            if each is None:
                job, used_s = jobs.get(name), cpu_s[name]
                priority, place = (job.record.priority, job.record.place) if job is not None else (0.0, record.order)
                reserved_cores = (job.record.reserved_cores or 0.0) if job is not None else 0.0
                user = job.record.user if job is not None else record.user
                each = ranked[name] = Ranked(name, user, job is not None, priority, place, used_s, reserved_cores, [])
            if record.container in read and not (each.is_job or record.job or record.adopted or record.hosts_job):
                each.expected = self._sizes.expected(record, each.cpu_s)
            if record.promised_cores and not record.opportunistic:
                each.reserved_cores = max(0.0, each.reserved_cores - record.promised_cores)
            if record.ranked:
                each.containers.append(record)
        return [each for each in ranked.values() if each.containers]

    def _share(
        self, containers: list[ContainerRecord], parts: list[int], weight: int, nice: int, rank: int
    ) -> list[Instruction]:
        """Divide a job's weight among its containers, in proportion to ``parts``.

        :meth:`_renice_promised` sets the nice value of those with promised cores. A new container always gets one: its
        processes may have started with another.
        """
        of, changed = sum(parts), list[Instruction]()
        for record, part in zip(containers, parts, strict=True):
            if not record.pid:
                continue  # still starting with its initial weight; ranked once it has started
            own = max(1, weight * part // of)
            before, own_nice = record.rank_weight, record.nice if record.promised_cores else nice
            known = record.container in self._weighted
            self._weighted.add(record.container)
            moved = own < before or own > _WORTH_WRITING * before if known else own != before
            moved = moved or own_nice != record.nice or rank != record.rank
            if moved or not known:
                record.set_rank(rank, own, own_nice)
                changed += self._changed(record, weight=moved)
        return changed


def _promised_weight(containers: Iterable[ContainerRecord]) -> int:
    return sum(promised_weight(record.promised_cores) for record in containers if record.promised_cores)
