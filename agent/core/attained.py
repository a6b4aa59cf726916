"""The service that jobs attain on this node, in container-seconds: what the master orders them by (LAS_MQ §3.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from agent.core.ranks import Ranks
from agent.core.records import ContainerRecord
from agent.queues import MonotaskQueues
from agent.queues.job_queue import JobQueue
from penstock.wire.master_api import JobUse

#: CPU time is told again when it has grown by so many seconds.
_WORTH_TELLING_S = 0.05
#: The ends of so many jobs are kept for a master that is away; of more, those that ended first are dropped.
_MOST_ENDED = 4096


class _Slots(NamedTuple):
    """Slots × time of a job, and the part of its commands on disks and the network, in seconds."""

    all_s: float
    of_commands_s: float


_NO_SLOTS = _Slots(0.0, 0.0)


class Attained:
    """Σ slots × time of each job, x · t in the paper's Eq. (6), exactly: the queues count it as slots come and go.

    Where the job's containers have used more CPU time than that, it is their CPU time. Much of what a framework's
    processes compute lies outside monotasks, and a command in one slot may compute on several processors.

    Where the kernel orders the jobs (``queues.ranked``), a job of which the containers are measured has received their
    CPU time, or the time in which its commands held slots of disks and of the network. The slots of its monotasks do
    not count: one of a job behind holds its slot for long, as its process gets little of the processors meanwhile.

    What a job received until its end is told as soon as its last container here has ended. The CPU time of that one is
    known then, and not before. What was told never falls.
    """

    def __init__(self, queues: MonotaskQueues, ranks: Ranks) -> None:
        """``ranks`` counts the CPU time of the jobs' containers."""
        self._queues = queues
        self._ranks = ranks
        self._told_s: dict[str, float] = {}  # by job of which containers are measured: what it was last told to have
        self._before: dict[str, _Slots] = {}  # of jobs that are over, or were, while containers of them run
        self.lasts_read = True  # by the master; of one that has yet to answer our registration that is not known
        self.most_commands_read = True  # likewise, of a Load's field
        self._ended: dict[str, float] = {}  # by job that is over: what it received, to be told with the next report

    def report(self, now: float) -> list[JobUse]:
        """Return the last of each job that is over, then the jobs of which something may have changed since."""
        cpu_s = self._ranks.cpu_s
        ended: list[JobUse] = []
        if self.lasts_read and self._ended:
            ended = [JobUse(job=job, service_s=used_s, last=True) for job, used_s in self._ended.items()]
            self._ended = {}
        served = {job.id: job for job in self._queues.take_served(now)}
        for job in self._queues.jobs():
            if job.id in cpu_s and self._service_s(job) > self._told_s.get(job.id, 0.0) + _WORTH_TELLING_S:
                served[job.id] = job
        uses = [self._use(job.id, self._slots(job), running=job.running) for job in served.values()]
        self._told_s = {name: told_s for name, told_s in self._told_s.items() if name in cpu_s}
        self._told_s |= {use.job: use.service_s for use in uses if use.job in cpu_s}
        return ended + uses

    def over(self, job: str, now: float, live: Iterable[ContainerRecord]) -> JobUse:
        """Return what a job that is over has received here; call it before its queue is removed.

        It is the last unless one of its containers runs: then the last is told when that has ended.
        """
        slots = self._slots(self._queues.counted(job, now))
        self._before.pop(job, None)
        use = self._use(job, slots, last=not _runs(job, live))
        if use.last:
            self._forget(job)
        else:
            self._before[job] = slots
        return use

    def tell(self, use: JobUse) -> None:
        """Tell the master with the next report, if this is the last of a job: of all its times here since the report
        before, as the master awaits nothing more after it."""
        if use.last:
            self._ended[use.job] = self._ended.get(use.job, 0.0) + use.service_s
            if len(self._ended) > _MOST_ENDED:
                del self._ended[next(iter(self._ended))]

    def container_gone(self, job: str, jobs: Collection[str], live: Iterable[ContainerRecord]) -> None:
        """A container of a job has ended, or belongs to another job from now on. ``jobs`` are those that are here."""
        if job in self._before and job not in jobs and not _runs(job, live):
            self.tell(self._use(job, self._before.pop(job), last=True))
            self._forget(job)

    def tell_all(self) -> None:
        """The next report names every job. The last of jobs waits until the master is known to read it."""
        self.lasts_read = self.most_commands_read = False
        self._queues.count_all()

    def _slots(self, job: JobQueue) -> _Slots:
        before = self._before.get(job.id, _NO_SLOTS)
        return _Slots(before.all_s + job.service_s, before.of_commands_s + job.command_s)

    def _service_s(self, job: JobQueue) -> float:
        return self._received_s(job.id, self._slots(job))

    def _received_s(self, job: str, slots: _Slots) -> float:
        cpu_s = self._ranks.cpu_s.get(job, 0.0)
        slots_s = slots.of_commands_s if cpu_s and self._queues.ranked else slots.all_s
        return max(slots_s, cpu_s)

    def _use(self, job: str, slots: _Slots, *, running: int = 0, last: bool = False) -> JobUse:
        service_s = max(self._received_s(job, slots), self._told_s.get(job, 0.0))
        return JobUse(job=job, service_s=service_s, running=running, last=last)

    def _forget(self, job: str) -> None:
        """A job that comes again is counted from 0."""
        self._told_s.pop(job, None)
        self._ranks.forget(job)


def _runs(job: str, live: Iterable[ContainerRecord]) -> bool:
    return any(record.job == job for record in live)
