"""The service that jobs attain on this node, in container-seconds: the master orders jobs by it (LAS_MQ §3.2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

from agent.core.containers import Containers
from agent.core.job_cpu_times import JobCpuTimes
from agent.core.membership import Membership
from agent.queues import MonotaskQueues
from agent.queues.job_queue import JobQueue
from penstock.wire.master_api import JobUse

#: CPU time is reported again when it has grown by this many seconds.
_WORTH_TELLING_S = 0.05
#: The final reports kept for an absent master; beyond this number, those that ended first are dropped.
_MOST_ENDED = 4096
ROOM = KEY = "reported"  # the journal's


class LastCount(msgspec.Struct, kw_only=True):
    """The counts of a node when its agent stops, ``at`` (Unix; 0: not dated), from which the next agent counts on.

    ``cpu_s``: the CPU time of each container that is counted. ``service_s``: the service of each job that is here or
    has containers here. ``own``: those of them whose origin is here, so that their end is recorded with their service.
    ``ended_s``: the final service of each ended job that no report contains. An earlier version records only the first:
    it counts service from 0, and reports the CPU time that follows.
    """

    at: float = 0.0
    cpu_s: dict[str, float]
    service_s: dict[str, float] = {}
    own: list[str] = []
    ended_s: dict[str, float] = {}


class _Slots(NamedTuple):
    """Slots × time of a job, and the part of its commands on disks and the network, in seconds."""

    all_s: float
    of_commands_s: float


_NO_SLOTS = _Slots(0.0, 0.0)


class AttainedService:
    """Σ slots × time of each job, x · t in the paper's Eq. (6), exact: the queues count it as slots come and go.

    If the job's containers have used more CPU time than that, the service is their CPU time. A framework's processes
    compute much outside monotasks, and a command in one slot may compute on several processors.

    Where the kernel orders the jobs (``queues.ranked``), the service of a job with measured containers is their CPU
    time, or the time for which its commands held slots of disks and of the network. The slots of its monotasks do not
    count: a monotask of a job behind holds its slot for long, because its process gets little CPU time meanwhile.

    The final service of a job is reported as soon as its last container here has ended: only then is that container's
    CPU time known. Reported service never decreases. An agent counts on from the last count of the one before it; after
    one that left none, as it was killed, it begins at 0, and the master adds what comes after a decrease.
    """

    def __init__(
        self, queues: MonotaskQueues, members: Membership, containers: Containers, cpu_times: JobCpuTimes
    ) -> None:
        self._queues = queues
        self._members = members
        self._containers = containers
        self._cpu_times = cpu_times
        self._reported_s: dict[str, float] = {}  # job with measured containers → its last reported service
        # ended jobs with containers that still run, and jobs that came again since
        self._before: dict[str, _Slots] = {}
        self.lasts_read = True  # whether the master reads final reports; unknown until it answers our registration
        self.most_commands_read = True  # the same for this field of Load
        self._ended: dict[str, float] = {}  # ended job → its service, for the next report
        # job → its service before the present count: until the agent started, or until the job came again before its
        # final report was sent
        self._carried_s: dict[str, float] = {}

    def report(self, now: float) -> list[JobUse]:
        """Return ended jobs' final service, then the jobs whose service may have changed since the last report."""
        cpu_s = self._cpu_times.cpu_s
        ended: list[JobUse] = []
        if self.lasts_read and self._ended:
            ended = [JobUse(job=job, service_s=used_s, last=True) for job, used_s in self._ended.items()]
            self._ended = {}
        elif not self.lasts_read:
            self._carry_on()
        served = {job.id: job for job in self._queues.take_served(now)}
        uses = [self._use(job.id, self._slots(job), running=job.running) for job in served.values()]
        for job in self._queues.jobs():
            if job.id in cpu_s and job.id not in served:
                use = self._use(job.id, self._slots(job), running=job.running)
                if use.service_s - self._reported_s.get(job.id, 0.0) > _WORTH_TELLING_S:
                    uses.append(use)
        self._reported_s = {name: reported_s for name, reported_s in self._reported_s.items() if name in cpu_s}
        self._reported_s |= {use.job: use.service_s for use in uses if use.job in cpu_s}
        return ended + uses

    def over(self, job: str, now: float) -> JobUse:
        """Return the service of an ended job; call this before its queue is removed.

        It is final unless one of the job's containers runs: then the final report follows when that container has
        ended.
        """
        slots = self._slots(self._queues.counted(job, now))
        self._before.pop(job, None)
        use = self._use(job, slots, last=not self._runs(job))
        if use.last:
            self._drop(job)
        else:
            self._before[job] = slots
        self._cpu_times.job_ended(job, now)
        return use

    def add_last(self, use: JobUse) -> None:
        """Add a job's final service to the next report. The master expects no report after it, so it covers all times
        that the job was here since the previous report.
        """
        if use.last:
            self._ended[use.job] = self._ended.get(use.job, 0.0) + use.service_s
            if len(self._ended) > _MOST_ENDED:
                del self._ended[next(iter(self._ended))]

    def to_come_s(self, job: str) -> float:
        """Return the service of an ended job so far, of which the final report is to come; 0: none is."""
        before = self._before.get(job)
        return self._ended.get(job, 0.0) + (self._use(job, before).service_s if before is not None else 0.0)

    def container_gone(self, job: str) -> None:
        """Report the final service of a job that is over if its last container here has ended or changed jobs."""
        if job in self._before and job not in self._members.jobs and not self._runs(job):
            self.add_last(self._use(job, self._before.pop(job), last=True))
            self._drop(job)

    def last_count(self, now: float) -> LastCount:
        """Return all that is counted until now, for the next agent."""
        here = {job.id: self._slots(self._queues.counted(job.id, now)) for job in self._queues.jobs()}
        service_s = {job: self._use(job, slots).service_s for job, slots in (self._before | here).items()}
        for job in self._ended.keys() & here.keys():  # it has come again
            service_s[job] += self._ended[job]
        ended_s = {job: used_s for job, used_s in self._ended.items() if job not in here}
        own = [name for name, job in self._members.jobs.items() if job.record.here]
        return LastCount(cpu_s=self._cpu_times.counted_s(), service_s=service_s, own=own, ended_s=ended_s)

    def count_on(self, service_s: Mapping[str, float], own: Collection[str], ended_s: Mapping[str, float]) -> None:
        """Count on from an earlier agent's :class:`LastCount`, after its jobs and containers were taken back.

        A job that is neither here nor has containers ended after that count, in an agent that left none. The end of one
        of this origin is recorded with its service; of another one, what was counted is reported.
        """
        for job, used_s in service_s.items():
            is_here = job in self._members.jobs
            if is_here or self._runs(job):
                self._carried_s[job] = used_s
            elif job not in own:
                self._ended[job] = used_s
            if not is_here and self._runs(job):
                self._before[job] = _NO_SLOTS
        for job, used_s in ended_s.items():
            self._ended[job] = self._ended.get(job, 0.0) + used_s

    def report_all(self) -> None:
        """Make the next report contain every job, however little its service has grown."""
        self._queues.count_all()

    def link_opens(self) -> None:
        """Report every job on a new connection. Final reports wait until the master is known to read them."""
        self.lasts_read = self.most_commands_read = False
        self.report_all()

    def _slots(self, job: JobQueue) -> _Slots:
        before = self._before.get(job.id, _NO_SLOTS)
        return _Slots(before.all_s + job.service_s, before.of_commands_s + job.command_s)

    def _carry_on(self) -> None:
        """Count on from the service of ended jobs that have come again. A registration reports their service now and
        has no final reports: the master would take one that follows for service received since.
        """
        for job in [job for job in self._ended if job in self._members.jobs]:
            self._carried_s[job] = self._carried_s.get(job, 0.0) + self._ended.pop(job)

    def _received_s(self, job: str, slots: _Slots) -> float:
        is_measured = self._cpu_times.cpu_s.get(job, 0.0) > 0
        slots_s = slots.of_commands_s if is_measured and self._queues.ranked else slots.all_s
        return self._carried_s.get(job, 0.0) + max(slots_s, self._cpu_times.since_start_s(job))

    def _use(self, job: str, slots: _Slots, *, running: int = 0, last: bool = False) -> JobUse:
        service_s = max(self._received_s(job, slots), self._reported_s.get(job, 0.0))
        return JobUse(job=job, service_s=service_s, running=running, last=last)

    def _drop(self, job: str) -> None:
        """Drop the job's counts: if it comes again, it is counted from 0."""
        self._reported_s.pop(job, None)
        self._carried_s.pop(job, None)
        self._cpu_times.drop(job)

    def _runs(self, job: str) -> bool:
        return any(record.job == job for record in self._containers.live.values())
