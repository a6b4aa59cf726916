"""Transfer of the order of jobs to the agents' queues (Ursa §4.2.3, "Monotask ordering").

A priority is a number that is only meaningful relative to those of other jobs. It is sent again only where the order of
jobs has changed, for as few jobs as possible: the longest part of the order that the numbers already match keeps its
numbers, and each other job gets a number between those of its neighbours.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

from master.core.dues import Clock, Dues
from master.core.guarantees import Guarantees
from master.core.job import NO_TENANT, Job
from master.core.membership import Membership
from master.core.node import Node
from master.core.order import Placing
from master.core.outbox import Outbox
from master.core.settings import CurrentSettings
from penstock.wire import master_api as api

#: Numbers closer than this leave no room in between: then all jobs get new ones.
_CLOSEST = 1e-5
#: For so many heartbeats after a job has come, its place is looked at more often than others'.
_YOUNG = 2


@dataclass(eq=False, repr=False)
class Priorities:
    """Gives each job its priority, and tells the agents, with the cores that the job's reservation promises it now."""

    _settings: CurrentSettings
    _dues: Dues
    _members: Membership
    _outbox: Outbox
    _guarantees: Guarantees
    _clock: Clock

    @property
    def may_change(self) -> bool:
        """Return whether a new order may lead to a message: an only job that has its place already is the first."""
        jobs = self._members.jobs.values()
        return len(jobs) > 1 or any(job.hosts_to_tell or not job.ranked for job in jobs)

    def spread(self, ranking: Placing, now: float) -> None:
        """Tell the agents that serve a job its priority, its tenant and its promised cores, where one has changed.

        The order is computed with the heartbeats that tell of new service, at most every half of one's interval, and,
        at most every ``interval_s``, with the round for a job that has come, and when one has ended or has been learnt
        from. A job that was moved within a heartbeat, and has received service since, keeps its priority: its own
        service changes the order gradually. It does not keep it before a job that came a moment ago. Other changes of
        the order, and new jobs, are sent at once.
        """
        self._dues.ordered(now)
        order = [job for name in ranking.order() if (job := self._members.jobs[name]).hosts]
        if not order:
            return
        fixed = _fixed(
            order, now - self._settings.current.heartbeat_s, now - _YOUNG * self._settings.current.heartbeat_s
        )
        fresh = {job.job for job in order if not job.ranked}
        moved = renumbered([job.job for job in order], {job.job: job.priority for job in order}, fixed, fresh)
        if moved:
            self._dues.place_anew()
        for name, priority in moved.items():
            moving = self._members.jobs[name]
            moving.priority = priority
            if name not in fresh:  # a first place is no move: it may have been given by old numbers
                moving.moved_at, moving.moved_with_s = now, moving.work.service_s
        self._assign_tenants(order)
        reserved_cores = self._guarantees.reserved_cores(self._clock.unix(now))
        for job in order:
            job.ranked = True
            if job.hosts_to_tell or job.job in moved or job.reservation:
                self._tell(job, ranking, reserved_cores)

    def served(self, node: Node, now: float) -> None:
        """Make the order due, because a node has told what service its jobs received.

        Where a job has come a moment ago, the agent looks at the CPU time of the others several times a second. The
        words of other nodes wait: an order of 1,000 jobs takes more than 5 ms.
        """
        if now - node.job_came_at <= _YOUNG * self._settings.current.heartbeat_s:
            self._dues.order_anew()
        self._dues.order_with_service()

    def _assign_tenants(self, order: Sequence[Job]) -> None:
        """Note each job's tenant with its part of a node beside others."""
        settings = self._settings.current
        if not settings.divides_nodes:
            for job in order:
                job.belongs_to(NO_TENANT)
            return
        users = {job.user for job in self._members.jobs.values() if job.described}
        weights = settings.tenant_weights(sorted(users))
        for job in order:
            tenant = settings.tenant_of(job.user)
            job.belongs_to((tenant, weights[tenant]))

    def _tell(self, job: Job, ranking: Placing, reserved_cores: Callable[[str, str], float | None]) -> None:
        job.hosts_to_tell = False
        for node, told in [*job.hosts.items()]:
            cores = reserved_cores(job.job, node)
            if told != job.priority or job.reserved_told.get(node) != cores:
                told_in = self._outbox.propose(node, priority_of(job, ranking.why(job.job), cores))
                job.priority_sent(node, told_in, cores)


def _fixed(order: Sequence[Job], moved_after: float, came_after: float) -> set[str]:
    """Return the jobs that keep their priority, because they were moved a moment ago and have received service since.

    Jobs behind one that came after ``came_after`` may be moved again. Both times are monotonic.
    """
    settled = takewhile(lambda job: job.came_at <= came_after, order)
    return {job.job for job in settled if job.moved_at > moved_after and job.work.service_s > job.moved_with_s}


def priority_of(job: Job, why: str, reserved_cores: float | None = None) -> api.SetPriority:
    """Return the message with a job's priority, and the cores of the node that its reservation promises it now."""
    tenant, weight = job.tenant
    return api.SetPriority(
        job=job.job, priority=job.priority, why=why, reserved_cores=reserved_cores, tenant=tenant, tenant_weight=weight
    )


def renumbered(
    order: Sequence[str], told: Mapping[str, float], fixed: Collection[str] = (), fresh: Collection[str] = ()
) -> dict[str, float]:
    """Return the priorities to change, and their new values, so that ``order`` is by descending priority.

    Jobs in ``fixed`` keep their number; they are skipped where it is out of place. The numbers of ``fresh`` jobs carry
    no meaning yet: they stay where they happen to be right, and never displace another job.
    """
    staying = _staying(order, told, fresh)
    line = [(job, told[job] if job in staying else None) for job in order if job in staying or job not in fixed]
    changed = _between_neighbours(line)
    after = [changed.get(job, told[job]) for job, _ in line]
    if any(first - second < _CLOSEST for first, second in pairwise(after)):
        return {job: float(len(order) - place) for place, job in enumerate(order)}
    return changed


def _between_neighbours(line: Sequence[tuple[str, float | None]]) -> dict[str, float]:
    """Return a number for each job without one: evenly spaced between its neighbours', in steps of 1 at the ends."""
    changed: dict[str, float] = {}
    start = 0
    upper: float | None = None
    while start < len(line):
        end = start
        while end < len(line) and line[end][1] is None:
            end += 1
        lower = line[end][1] if end < len(line) else None
        count = end - start
        if upper is None:
            upper = (lower or 0.0) + count + 1
        step = (upper - lower) / (count + 1) if lower is not None else 1.0
        for place in range(count):
            changed[line[start + place][0]] = upper - step * (place + 1)
        upper, start = lower, end + 1
    return changed


def _staying(order: Sequence[str], told: Mapping[str, float], fresh: Collection[str]) -> set[str]:
    """Return the longest part of the order with descending numbers, and the fresh jobs whose numbers fit in between."""
    known = _longest_descending([job for job in order if job not in fresh], told)
    staying = set(known)
    between: list[list[str]] = [[]]
    bounds = [math.inf]
    for job in order:
        if job in fresh:
            between[-1].append(job)
        elif job in known:
            between.append([])
            bounds.append(told[job])
    for upper, lower, some in zip(bounds, [*bounds[1:], -math.inf], between, strict=True):
        staying |= _longest_descending([job for job in some if lower < told[job] < upper], told)
    return staying


def _longest_descending(order: Sequence[str], told: Mapping[str, float]) -> set[str]:
    """Return the longest part of the order with descending numbers (patience sorting)."""
    tails: list[float] = []  # the negated number that ends the best run of each length
    ends: list[str] = []
    before: dict[str, str | None] = {}
    for job in order:
        number = -told[job]
        length = bisect_left(tails, number)
        before[job] = ends[length - 1] if length else None
        if length == len(tails):
            tails.append(number)
            ends.append(job)
        else:
            tails[length], ends[length] = number, job
    staying: set[str] = set()
    at = ends[-1] if ends else None
    while at is not None:
        staying.add(at)
        at = before[at]
    return staying
