"""The service that jobs attain on this node, in container-seconds: what the master orders them by (LAS_MQ §3.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from agent.core.ranks import Ranks
from agent.core.records import ContainerRecord
from agent.queues import MonotaskQueues
from agent.queues.resource import JobQueue
from penstock.wire.master_api import JobUse

#: CPU time is told again when it has grown by so many seconds.
_WORTH_TELLING_S = 0.05
#: The ends of so many jobs are kept for a master that is away; of more, those that ended first are dropped.
_MOST_ENDED = 4096


class Attained:
    """Σ slots × time of each job, x · t in the paper's Eq. (6), exactly: the queues count it as slots come and go.

    Where the job's containers have used more CPU time than that, it is their CPU time. Much of what a framework's
    processes compute lies outside monotasks, and a command in one slot may compute on several processors.

    What a job received until its end is told as soon as its last container here has ended. The CPU time of that one is
    known then, and not before.
    """

    def __init__(self, queues: MonotaskQueues, ranks: Ranks) -> None:
        """``ranks`` counts the CPU time of the jobs' containers."""
        self._queues = queues
        self._ranks = ranks
        self._told_cpu_s: dict[str, float] = {}
        self._before_s: dict[str, float] = {}  # slot-time of jobs that are over, or were, while containers of them run
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
            used_s = cpu_s.get(job.id, 0.0)
            if used_s > max(self._slots_s(job), self._told_cpu_s.get(job.id, 0.0) + _WORTH_TELLING_S):
                served[job.id] = job
        self._told_cpu_s = {name: told_s for name, told_s in self._told_cpu_s.items() if name in cpu_s}
        self._told_cpu_s |= {name: cpu_s[name] for name in served if name in cpu_s}
        return ended + [
            JobUse(job=job.id, service_s=max(self._slots_s(job), cpu_s.get(job.id, 0.0)), running=job.running)
            for job in served.values()
        ]

    def over(self, job: str, now: float, live: Iterable[ContainerRecord]) -> JobUse:
        """Return what a job that is over has received here; call it before its queue is removed.

        It is the last unless one of its containers runs: then the last is told when that has ended.
        """
        slots_s = self._before_s.pop(job, 0.0) + self._queues.service_s(job, now)
        use = self._use(job, slots_s, last=not _runs(job, live))
        if use.last:
            self._forget(job)
        else:
            self._before_s[job] = slots_s
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
        if job in self._before_s and job not in jobs and not _runs(job, live):
            self.tell(self._use(job, self._before_s.pop(job), last=True))
            self._forget(job)

    def tell_all(self) -> None:
        """The next report names every job. The last of jobs waits until the master is known to read it."""
        self.lasts_read = self.most_commands_read = False
        self._queues.count_all()

    def _slots_s(self, job: JobQueue) -> float:
        return job.service_s + self._before_s.get(job.id, 0.0)

    def _use(self, job: str, slots_s: float, *, last: bool) -> JobUse:
        return JobUse(job=job, service_s=max(slots_s, self._ranks.cpu_s.get(job, 0.0)), last=last)

    def _forget(self, job: str) -> None:
        """A job that comes again is counted from 0."""
        self._told_cpu_s.pop(job, None)
        self._ranks.forget(job)


def _runs(job: str, live: Iterable[ContainerRecord]) -> bool:
    return any(record.job == job for record in live)
