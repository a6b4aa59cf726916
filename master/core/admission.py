"""Job admission (Ursa §4.2.2): a job's memory is reserved in the cluster before any of its tasks is placed.

Tasks that no node of the cluster could ever hold are refused.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from master.core.backfill import Backfill, Running
from master.core.dues import Clock, Dues
from master.core.executors import Executors
from master.core.guarantees import Guarantees
from master.core.history import History
from master.core.job import Job
from master.core.membership import Membership
from master.core.order import Order
from master.core.outbox import Outbox
from master.core.settings import CurrentSettings, MasterSettings
from master.core.snapshot import Snapshots
from master.core.table import NodeTable
from master.core.task_lifecycle import TaskLifecycle
from penstock.model import Ended, EndedBy
from penstock.model.units import counted, format_bytes
from penstock.wire import master_api as api


@dataclass(eq=False, repr=False)
class Admission:
    """Admits the jobs that fit, records why the others wait, and refuses tasks that could never be placed."""

    _settings: CurrentSettings
    _dues: Dues
    _history: History
    _table: NodeTable
    _members: Membership
    _outbox: Outbox
    _order: Order
    _snapshots: Snapshots
    _executors: Executors
    _tasks: TaskLifecycle
    _guarantees: Guarantees
    _clock: Clock

    def look(self, now: float) -> None:
        """Admit jobs between two rounds, because the reservable memory or the set of waiting jobs has changed."""
        self._dues.room_changed = False
        waiting = [name for name, job in self._members.jobs.items() if job.described and not job.admitted]
        if len(waiting) == 1:
            self.admit(waiting, now)
        elif waiting:
            self.admit(self._order.rank(now).order(), now)

    def reservable_bytes(self) -> int:
        """Return the memory of the nodes that take work, less the memory promised to containers outside any job."""
        return int(self._table.reservable[self._table.taking()].sum())

    def reserved_bytes(self) -> int:
        """Return the memory reserved by all admitted jobs, the sum of M(j)."""
        return sum(job.memory_bytes for job in self._members.jobs.values() if job.admitted)

    def never_fits(self, job: Job) -> str:
        """Return why a job can never be admitted; empty where it can. Drained nodes and the memory of containers
        outside any job count as available, because a drained node comes back and a container ends.
        """
        if job.admitted or not job.memory_bytes:
            return ""
        total = int(self._table.memory_capacity[self._table.here()].sum())
        if job.memory_bytes <= total:
            return ""
        return f"it wants {format_bytes(job.memory_bytes)} reserved, the whole cluster has {format_bytes(total)}"

    def complete(self, now: float) -> bool:
        """Return whether all nodes are connected, and the time to return after a restart is over."""
        first = self._dues.gathers_since
        gathered = first is not None and now - first > self._settings.current.node_timeout_s
        return gathered and all(node.connected for node in self._members.nodes.values())

    def admit(self, order: Sequence[str], now: float) -> None:
        """Admit the jobs that fit, in the order of the jobs (Ursa: "the enforcement of SRJF in job admission … is
        similar as in EJF").

        The first job that does not fit becomes the one to wait for. A job behind it is admitted only if the first job
        then starts no later (:mod:`master.core.backfill`), so a large job does not starve. Once a job has waited
        ``admission_wait_max_s`` it goes to the front, and no other job that reserves memory is admitted before it;
        otherwise an ordering could keep putting new jobs first. A job too large even for an empty cluster is passed
        over until nodes join. A job that reserves no memory delays no other job. ``max_running_jobs`` bounds the number
        of admitted jobs (LAS_MQ §4), ``user_max_jobs`` the number per user; a job that waits for the latter delays no
        other. Opportunistic tasks need no admission. A job that is promised its memory now (Rayon §5.1) waits neither
        for memory nor for other jobs: room is made for its tasks.
        """
        line = self._in_line(order, now)
        due = self._due(now) if any(job.reservation for job in line) else {}
        room = _Room(self._settings.current, self._members.jobs, self.reservable_bytes())
        first: _First | None = None
        for job in line:
            wanted = job.memory_bytes
            if wanted > room.total_bytes:
                never = bool(self.never_fits(job)) and self.complete(now)
                kind = "never" if never else "too large"
                self._waits(job, kind, self._too_large(job, room.total_bytes, never=never))
            elif not room.for_user(job.user):
                limit = self._settings.current.user_max_jobs
                job.in_line_since = None  # a limit of the user delays the job, not the cluster
                self._waits(job, "user jobs", f"{job.user} runs {counted(limit, 'job')}, which is user_max_jobs")
            elif self._is_promised(job, due):
                self._admit(job, room, now)
            elif not room.jobs:
                limit = self._settings.current.max_running_jobs
                self._waits(job, "jobs", f"the cluster runs {counted(limit, 'job')}, which is max_running_jobs")
            elif not wanted or (first is None and wanted <= room.free_bytes):
                self._admit(job, room, now)
            elif first is None:
                first = _First(job, room, self._members.jobs, self._history, now, late=self._late(job, now))
                free = f"{format_bytes(max(0, room.free_bytes))} of {format_bytes(room.total_bytes)} is not reserved"
                self._waits(job, "memory", f"it wants {format_bytes(wanted)} reserved, {free}")
            elif wanted <= room.free_bytes and first.lets_pass(job, room):
                self._admit(job, room, now, f"; job {first.told_to(job)} before it starts no later")
            else:
                before = f"job {first.told_to(job)} is ahead of it and also waits"
                might = "; there is room for it, but that one might start later" if wanted <= room.free_bytes else ""
                self._waits(job, "behind", before + might)

    def _due(self, now: float) -> dict[str, float]:
        """Return by reservation the memory that is promised now to those of its jobs that are not admitted yet, in
        bytes; infinite where only other resources are promised.
        """
        members, guarantees = self._guarantees.of(self._clock.unix(now))
        due = {name: one.promised[3] or math.inf for name, one in guarantees.items()}
        for name, reservation in members.items():
            if reservation in due and self._members.jobs[name].admitted:
                due[reservation] -= self._members.jobs[name].memory_bytes
        return due

    def _is_promised(self, job: Job, due: dict[str, float]) -> bool:
        """Return whether the job's memory is promised now; it then is due no more."""
        if not job.reservation or job.memory_bytes > due.get(job.reservation, -1.0):
            return False
        due[job.reservation] -= job.memory_bytes
        return True

    def _admit(self, job: Job, room: _Room, now: float, passed: str = "") -> None:
        room.take(job.user, job.memory_bytes)
        job.admit(now)
        self._outbox.counts["admitted"] += 1
        self._dues.changed = True
        why = f"{format_bytes(room.reserved_bytes)} of {format_bytes(room.total_bytes)} reserved with it{passed}"
        self._outbox.propose(job.origin, api.AdmitJob(job=job.job, why=why))

    def _too_large(self, job: Job, total_bytes: int, *, never: bool) -> str:
        if why := self.never_fits(job):
            return f"{why}; " + ("ask for less, or add nodes" if never else "it waits for nodes to join")
        wants, has = format_bytes(job.memory_bytes), format_bytes(total_bytes)
        if job.memory_bytes <= int(self._table.memory_capacity[self._table.taking()].sum()):
            return f"it wants {wants} reserved, {has} is not promised to containers of no job; it waits for their end"
        return f"it wants {wants} reserved, the nodes that are not drained have {has}; it waits for `penstock undrain`"

    def _in_line(self, order: Sequence[str], now: float) -> list[Job]:
        """Return the waiting jobs in their order; jobs that have waited too long come first, by time of submission."""
        jobs = (self._members.jobs[name] for name in order)
        waiting = [job for job in jobs if not job.admitted and not job.cancelled_by]
        for job in waiting:
            job.in_line_since = now if job.in_line_since is None else job.in_line_since
        late = [job for job in waiting if self._late(job, now)]
        late.sort(key=lambda job: (job.submitted_at, job.sequence))
        return late + [job for job in waiting if not self._late(job, now)]

    def _late(self, job: Job, now: float) -> bool:
        longest_s = self._settings.current.admission_wait_max_s
        return job.in_line_since is not None and now - job.in_line_since > longest_s

    def _waits(self, job: Job, kind: str, why: str) -> None:
        """Record why a job waits, with the present numbers; tell its origin when the kind of reason changes."""
        if not job.slack_only:
            job.wait(why)
        elif not job.ready_count:
            job.wait("")  # all its tasks run
        waiting = api.TellWaiting(job=job.job, why=why, never=kind == "never")
        if job.waits_told != kind and self._outbox.propose(job.origin, waiting):
            job.waits_told = kind

    def refuse_unfit(self, now: float) -> None:
        """End each task that no node can ever hold, because it, or its job, is too large: at once if the cluster is
        complete, else after ``node_timeout_s``.
        """
        if not self._members.ready_tasks or not len(self._table.here()):
            return
        timeout_s = 0.0 if self.complete(now) else self._settings.current.node_timeout_s
        shape = self._table.shape
        for job in list(self._members.jobs.values()):
            too_large = self.never_fits(job) if job.described and not job.admitted else ""
            if job.fits_in == shape and not too_large:
                continue
            job.fits_in = shape
            for (_, opportunistic), tasks in list(job.ready.items()):
                for task in list(tasks.values()):
                    if task.fits_in == shape and not too_large:
                        continue
                    reason, foreseen = not opportunistic and too_large, False
                    if not reason and (reason := self._snapshots.unfit(task)):
                        foreseen = self._executors.foreseen(job, task)
                    if not reason or foreseen:  # a forecast changes
                        task.unfit_since, task.fits_in = None, -1 if foreseen else shape
                        job.fits_in = min(job.fits_in, task.fits_in)
                        continue
                    job.fits_in = -1
                    task.unfit_since = now if task.unfit_since is None else task.unfit_since
                    if not timeout_s or now - task.unfit_since > timeout_s:
                        self._tasks.end(job, task, Ended(by=EndedBy.REFUSED, reason=reason))


class _First:
    """The first job in line that waits for memory; decides which jobs behind it may pass.

    Under ``max_running_jobs`` a job that passes does not delay it: the first job starts when another job ends, which
    frees a place as well as the memory.
    """

    def __init__(
        self, job: Job, room: _Room, jobs: Mapping[str, Job], history: History, now: float, *, late: bool
    ) -> None:
        """``late``: the job has waited for too long, so that none may pass."""
        self.job = job
        self._jobs, self._history, self._now = jobs, history, now
        self._late = late
        self._lacks_bytes = job.memory_bytes - room.free_bytes
        self._backfill: Backfill | None = None

    def told_to(self, job: Job) -> str:
        """Return how another job's user is told of this one: names of jobs are their users' own."""
        return f"{self.job.job} ({self.job.name})" if job.user == self.job.user else self.job.job

    def lets_pass(self, job: Job, room: _Room) -> bool:
        """Return whether a job that fits is admitted before the first job."""
        if self._late or (job.user == self.job.user and not room.for_user(job.user, 2)):
            return False
        if self._backfill is None:
            self._backfill = Backfill(self._lacks_bytes, self._running())
        before = self._history.of((job.user, job.name))
        return self._backfill.take(job.memory_bytes, math.inf if before is None else before.ends_within_s)

    def _running(self) -> Iterator[Running]:
        for job in self._jobs.values():
            if job.admitted and job.memory_bytes:
                before = self._history.of((job.user, job.name))
                if before is None or job.admitted_at is None:
                    yield Running(job.memory_bytes)
                else:
                    yield Running(job.memory_bytes, before.ends_after_s(self._now - job.admitted_at))


class _Room:
    """The memory that may still be reserved, and the number of jobs that may still be admitted."""

    def __init__(self, settings: MasterSettings, jobs: Mapping[str, Job], total_bytes: int) -> None:
        admitted = [job for job in jobs.values() if job.admitted]
        self.total_bytes = total_bytes
        self.reserved_bytes = sum(job.memory_bytes for job in admitted)
        limit = settings.max_running_jobs
        self.jobs = max(0, limit - len(admitted)) if limit else len(jobs)
        self._of_a_user = settings.user_max_jobs or len(jobs)
        self._users = Counter(job.user for job in admitted)

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
