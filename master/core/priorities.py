"""The order of the jobs reaches the queues of the agents (Ursa §4.2.3, "Monotask ordering").

A priority is a number that only means something against those of other jobs. It is said anew only where the order of
jobs has changed, to as few jobs as will do: the longest part of the order that the numbers show already stays as it is,
and each of the others gets a number between those of its neighbours.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.wire import master_api as api

if TYPE_CHECKING:
    from master.core.cluster import Cluster
    from master.core.records import Job
    from master.ordering import Ranking

#: Numbers that lie closer leave no room between them: then all jobs get new ones.
_CLOSEST = 1e-5


def first_priority(submitted_at: float) -> float:
    """Of a job that nobody has put in its place yet: by submission (Unix time). Under ``ejf`` and ``fifo`` it stays."""
    return -submitted_at


def spread(cluster: Cluster, ranking: Ranking, now: float) -> None:
    """Tell the agents that serve a job its place, where it has changed.

    That is looked at once a heartbeat, and, at most every ``interval_s``, when a job has come, ended, or been learnt
    from. A job whose place was changed within a heartbeat, and that has received service since, keeps it: its own
    service changes the order bit by bit. What else changes the order is told at once, and a new job always is.
    """
    cluster.ordered_at, cluster.order_due, cluster.order_owed = now, now + cluster.settings.heartbeat_s, False
    order = [job for name in ranking.order() if (job := cluster.jobs[name]).hosts]
    recently = now - cluster.settings.heartbeat_s
    fixed = {job.job for job in order if job.moved_at > recently and job.work.service_s > job.moved_with_s}
    fresh = {job.job for job in order if not job.ranked}
    moved = renumbered([job.job for job in order], {job.job: job.priority for job in order}, fixed, fresh)
    if moved:
        cluster.changed, cluster.ahead_due = True, 0.0
    for name, priority in moved.items():
        moving = cluster.jobs[name]
        moving.priority, moving.moved_at, moving.moved_with_s = priority, now, moving.work.service_s
    for job in order:
        job.ranked = True
        if job.hosts_to_tell or job.job in moved:
            _tell(cluster, job, ranking.why(job.job))


def priority_of(job: Job, why: str) -> api.SetPriority:
    """What is said of a job's place."""
    return api.SetPriority(job=job.job, priority=job.priority, why=why)


def _tell(cluster: Cluster, job: Job, why: str) -> None:
    job.hosts_to_tell = False
    for node in [node for node, told in job.hosts.items() if told != job.priority]:
        job.told(node, cluster.propose(node, priority_of(job, why)))


def renumbered(
    order: Sequence[str], told: Mapping[str, float], fixed: Collection[str] = (), fresh: Collection[str] = ()
) -> dict[str, float]:
    """Which numbers to change, and to what, so that larger ones stand first in ``order``.

    Jobs in ``fixed`` keep their number; where it is out of place they are passed over. The numbers of ``fresh`` jobs
    say nothing yet: they stay where they are right as it happens, and put no other job out of place.
    """
    staying = _staying(order, told, fresh)
    line = [(job, told[job] if job in staying else None) for job in order if job in staying or job not in fixed]
    changed = _between_neighbours(line)
    after = [changed.get(job, told[job]) for job, _ in line]
    if any(first - second < _CLOSEST for first, second in pairwise(after)):
        return {job: float(len(order) - place) for place, job in enumerate(order)}
    return changed


def _between_neighbours(line: Sequence[tuple[str, float | None]]) -> dict[str, float]:
    """A number for each that has none: evenly between those that have one, in steps of 1 at the ends."""
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
    """The longest part of the order whose numbers fall already, and the fresh jobs whose numbers fit in between."""
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
    """The longest part of the order whose numbers fall already (patience sorting)."""
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
