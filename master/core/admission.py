"""Job admission (Ursa §4.2.2): a job's memory is reserved in the cluster before any of its tasks is placed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from master.core.backfill import Backfill, Running
from master.core.records import Job
from penstock.model.units import counted, format_bytes
from penstock.wire import master_api as api

if TYPE_CHECKING:
    from master.core.cluster import Cluster


def look(cluster: Cluster, now: float) -> None:
    """Admit jobs between two rounds, because the reservable memory or the set of waiting jobs has changed."""
    cluster.dues.room_changed = False
    waiting = [name for name, job in cluster.members.jobs.items() if job.described and not job.admitted]
    if len(waiting) == 1:
        admit(cluster, waiting, now)
    elif waiting:
        admit(cluster, cluster.order.rank(now).order(), now)


def reservable_bytes(cluster: Cluster) -> int:
    """Return the memory of the nodes that take work, less the memory promised to containers outside any job."""
    return int(cluster.table.reservable[cluster.table.taking()].sum())


def reserved_bytes(cluster: Cluster) -> int:
    """Return the memory reserved by all admitted jobs, the sum of M(j)."""
    return sum(job.memory_bytes for job in cluster.members.jobs.values() if job.admitted)


def never_fits(cluster: Cluster, job: Job) -> str:
    """Return why a job can never be admitted; empty where it can. Drained nodes and the memory of containers outside
    any job count as available, because a drained node comes back and a container ends.
    """
    if job.admitted or not job.memory_bytes:
        return ""
    total = int(cluster.table.memory_capacity[cluster.table.here()].sum())
    if job.memory_bytes <= total:
        return ""
    return f"it wants {format_bytes(job.memory_bytes)} reserved, the whole cluster has {format_bytes(total)}"


def complete(cluster: Cluster, now: float) -> bool:
    """Return whether no node is missing: the time to return after a restart is over, and all nodes are connected."""
    first = cluster.dues.gathers_since
    gathered = first is not None and now - first > cluster.settings.node_timeout_s
    return gathered and all(node.connected for node in cluster.members.nodes.values())


def admit(cluster: Cluster, order: Sequence[str], now: float) -> None:
    """Admit the jobs that fit, in the order of the jobs (Ursa: "the enforcement of SRJF in job admission … is similar
    as in EJF").

    The first job that does not fit becomes the one to wait for. A job behind it is admitted only if the first job then
    starts no later (:mod:`master.core.backfill`), so a large job does not starve. Once a job has waited
    ``admission_wait_max_s`` it goes to the front, and no other job that reserves memory is admitted before it;
    otherwise an ordering could keep putting new jobs first. A job too large even for an empty cluster is passed over
    until nodes join. A job that reserves no memory delays no other job. ``max_running_jobs`` bounds the number of
    admitted jobs (LAS_MQ §4), ``user_max_jobs`` the number per user; a job that waits for the latter delays no other.
    Opportunistic tasks need no admission.
    """
    room = _Room(cluster)
    first: _First | None = None
    for job in _in_line(cluster, order, now):
        wanted = job.memory_bytes
        if wanted > room.total_bytes:
            never = bool(never_fits(cluster, job)) and complete(cluster, now)
            kind = "never" if never else "too large"
            _waits(cluster, job, kind, _too_large(cluster, job, room.total_bytes, never=never))
        elif not room.for_user(job.user):
            limit = cluster.settings.user_max_jobs
            job.waits_since = None  # a limit of the user delays the job, not the cluster
            _waits(cluster, job, "user jobs", f"{job.user} runs {counted(limit, 'job')}, which is user_max_jobs")
        elif not room.jobs:
            limit = cluster.settings.max_running_jobs
            _waits(cluster, job, "jobs", f"the cluster runs {counted(limit, 'job')}, which is max_running_jobs")
        elif not wanted or (first is None and wanted <= room.free_bytes):
            _admit(cluster, job, room, now)
        elif first is None:
            first = _First(cluster, job, room, now)
            free = f"{format_bytes(max(0, room.free_bytes))} of {format_bytes(room.total_bytes)} is not reserved"
            _waits(cluster, job, "memory", f"it wants {format_bytes(wanted)} reserved, {free}")
        elif wanted <= room.free_bytes and first.lets_pass(job, room):
            _admit(cluster, job, room, now, f"; job {first.job.job} ({first.job.name}) before it starts no later")
        else:
            before = f"job {first.job.job} ({first.job.name}) is ahead of it and also waits"
            might = "; there is room for it, but that one might start later" if wanted <= room.free_bytes else ""
            _waits(cluster, job, "behind", before + might)


def _admit(cluster: Cluster, job: Job, room: _Room, now: float, passed: str = "") -> None:
    room.take(job.user, job.memory_bytes)
    job.admitted, job.admitted_at, job.waits_why = True, now, ""
    cluster.counts["admitted"] += 1
    cluster.dues.changed = True
    why = f"{format_bytes(room.reserved_bytes)} of {format_bytes(room.total_bytes)} reserved with it{passed}"
    cluster.outbox.propose(job.origin, api.AdmitJob(job=job.job, why=why))


class _First:
    """The first job in line that waits for memory; decides which jobs behind it may pass.

    Under ``max_running_jobs`` a job that passes does not delay it: the first job starts when another job ends, which
    frees a place as well as the memory.
    """

    def __init__(self, cluster: Cluster, job: Job, room: _Room, now: float) -> None:
        self.job = job
        self._cluster, self._now = cluster, now
        self._late = _late(cluster, job, now)
        self._lacks_bytes = job.memory_bytes - room.free_bytes
        self._backfill: Backfill | None = None

    def lets_pass(self, job: Job, room: _Room) -> bool:
        """Return whether a job that fits is admitted before the first job."""
        if self._late or (job.user == self.job.user and not room.for_user(job.user, 2)):
            return False
        if self._backfill is None:
            self._backfill = Backfill(self._lacks_bytes, self._running())
        before = self._cluster.history.of((job.user, job.name))
        return self._backfill.take(job.memory_bytes, math.inf if before is None else before.ends_within_s)

    def _running(self) -> Iterator[Running]:
        for job in self._cluster.members.jobs.values():
            if job.admitted and job.memory_bytes:
                before = self._cluster.history.of((job.user, job.name))
                if before is None or job.admitted_at is None:
                    yield Running(job.memory_bytes)
                else:
                    yield Running(job.memory_bytes, before.ends_after_s(self._now - job.admitted_at))


def _too_large(cluster: Cluster, job: Job, total_bytes: int, *, never: bool) -> str:
    if why := never_fits(cluster, job):
        return f"{why}; " + ("ask for less, or add nodes" if never else "it waits for nodes to join")
    wants, has = format_bytes(job.memory_bytes), format_bytes(total_bytes)
    if job.memory_bytes <= int(cluster.table.memory_capacity[cluster.table.taking()].sum()):
        return f"it wants {wants} reserved, {has} is not promised to containers of no job; it waits for their end"
    return f"it wants {wants} reserved, the nodes that are not drained have {has}; it waits for `penstock undrain`"


class _Room:
    """The memory that may still be reserved, and the number of jobs that may still be admitted."""

    def __init__(self, cluster: Cluster) -> None:
        self.total_bytes = reservable_bytes(cluster)
        self.reserved_bytes = reserved_bytes(cluster)
        limit = cluster.settings.max_running_jobs
        running = sum(job.admitted for job in cluster.members.jobs.values())
        self.jobs = max(0, limit - running) if limit else len(cluster.members.jobs)
        self._of_a_user = cluster.settings.user_max_jobs or len(cluster.members.jobs)
        self._users = Counter(job.user for job in cluster.members.jobs.values() if job.admitted)

    @property
    def free_bytes(self) -> int:
        """Return the unreserved memory; negative after nodes have left."""
        return self.total_bytes - self.reserved_bytes

    def for_user(self, user: str, jobs: int = 1) -> bool:
        """Return whether this user may have that many more jobs admitted."""
        return self._users[user] + jobs <= self._of_a_user

    def take(self, user: str, wanted: int) -> None:
        """Count a job that is being admitted."""
        self._users[user] += 1
        self.reserved_bytes += wanted
        self.jobs -= 1


def _in_line(cluster: Cluster, order: Sequence[str], now: float) -> list[Job]:
    """Return the waiting jobs in their order; jobs that have waited too long come first, by time of submission."""
    jobs = (cluster.members.jobs[name] for name in order)
    waiting = [job for job in jobs if not job.admitted and not job.cancelled_by]
    for job in waiting:
        if job.waits_since is None:
            job.waits_since = now
    late = [job for job in waiting if _late(cluster, job, now)]
    late.sort(key=lambda job: (job.submitted_at, job.sequence))
    names = {job.job for job in late}
    return late + [job for job in waiting if job.job not in names]


def _late(cluster: Cluster, job: Job, now: float) -> bool:
    return now - (job.waits_since or 0.0) > cluster.settings.admission_wait_max_s


def _waits(cluster: Cluster, job: Job, kind: str, why: str) -> None:
    """Record why a job waits; tell its origin when the kind of reason changes. The status shows the current numbers."""
    if not job.slack_only:
        job.waits_why = why
    elif not job.ready_count:
        job.waits_why = ""  # all its tasks run
    waiting = api.TellWaiting(job=job.job, why=why, never=kind == "never")
    if job.waits_told != kind and cluster.outbox.propose(job.origin, waiting):
        job.waits_told = kind
