"""The CPU time of each job's containers on this node, by which jobs are ranked and their service is reported."""

from __future__ import annotations

import math

from agent.core.containers import Containers
from agent.core.membership import Membership
from agent.core.records import ContainerRecord
from agent.core.snapshot import Snapshot


class JobCpuTimes:
    """Counts the CPU time of jobs, including that of promised and opportunistic containers.

    What a container uses between two counts is its job's at the second one. Without a job it is counted under the
    container's own name, and becomes that of the first job that a process in it registers. A container whose job has
    ended begins at 0 again: ranked by what the job used, the exit of a short job's processes would take seconds. Its
    record has what it used for jobs that are over, as the next agent finds only the sum of all.
    """

    def __init__(self, members: Membership, containers: Containers) -> None:
        #: Job → CPU seconds of its containers.
        self.cpu_s: dict[str, float] = {}
        self._members = members
        self._containers = containers
        self._counted_s: dict[str, float] = {}  # container → its CPU seconds at the last count
        self._job_of: dict[str, str] = {}  # container → its job
        self._job_ended_at: dict[str, float] = {}  # container → when its job ended; until the next sample
        #: Container → its CPU seconds when its job began beside another one of its jobs.
        self._began_s: dict[str, float] = {}

    def job_of(self, container: str) -> str:
        """Return the job of a container; its own name if it has none."""
        return self._job_of.get(container, container)

    def changed(self, snapshot: Snapshot) -> bool:
        """Return whether a container has used the processor since the last count."""
        counted_s = self._counted_s
        return any(use.cpu_seconds != counted_s.get(name) for name, use in snapshot.containers.items())

    def count(self, snapshot: Snapshot | None) -> list[ContainerRecord]:
        """Count the CPU time of all containers since the last count, each for its job.

        Return the containers whose records have changed, to be journaled: a process takes part in a job for the first
        time, or a job is over.
        """
        changed = self._assign()
        live, jobs = self._containers.live, self._members.jobs
        kept = {record.job for record in live.values()}  # a job that is over still counts the use of its containers
        self.cpu_s = {job: s for job, s in self.cpu_s.items() if job in jobs or job in kept or job in live}
        uses = snapshot.containers if snapshot is not None else {}
        before_s, self._counted_s = self._counted_s, {}
        for container, record in live.items():
            job, use = self.job_of(container), uses.get(container)
            counted_s = before_s.get(container, record.cpu_before_s)
            used_s = use.cpu_seconds if use is not None else counted_s
            more_s = used_s - counted_s
            self._counted_s[container] = used_s
            if container in self._job_ended_at:
                changed.append(record)
                if job == container:  # its job used it
                    record.leave_out(more_s)
                    more_s = 0.0
            if snapshot is not None and snapshot.at >= self._job_ended_at.get(container, math.inf):
                del self._job_ended_at[container]
            self.cpu_s[job] = self.cpu_s.get(job, 0.0) + more_s
        return changed

    def end(self, record: ContainerRecord, cpu_s: float, *, goes_on: bool = False) -> None:
        """Count all CPU time of a container that has ended, or that leaves its job and ``goes_on``, as the job's."""
        job = self._job_of.pop(record.container, record.job)
        counted_s = self._counted_s.pop(record.container, record.cpu_before_s)
        self._job_ended_at.pop(record.container, None)
        used_s = max(cpu_s, counted_s)  # for a container whose end was not observed, the sampled time
        if job:
            self.cpu_s[job] = self.cpu_s.get(job, 0.0) + used_s - counted_s
        if goes_on:
            self._counted_s[record.container] = used_s
            self._leave_out(record)
        self._began_s.pop(record.container, None)

    def job_ended(self, job: str, now: float) -> None:
        """Count what containers use from now on for themselves, where a process in them had registered the job."""
        for container, record in self._containers.live.items():
            if not record.job and self._job_of.get(container) == job:
                del self._job_of[container]
                self._job_ended_at[container] = now
                self._leave_out(record)

    def drop(self, job: str) -> None:
        """Drop the CPU time of a job that is over."""
        self.cpu_s.pop(job, None)

    def _counted(self, record: ContainerRecord) -> float:
        return self._counted_s.get(record.container, record.cpu_before_s)

    def _leave_out(self, record: ContainerRecord) -> None:
        """Leave what a container used for a job that is over out of what it used for later ones."""
        record.leave_out(self._counted(record) - self._began_s.pop(record.container, record.cpu_before_s))

    def _assign(self) -> list[ContainerRecord]:
        """Assign containers to the job that they were placed for, or that a process in them registered: of a
        connection with several jobs, the first.

        Return those whose records have changed, as in :meth:`count`.
        """
        changed = []
        jobs, sessions = self._members.jobs, self._members.sessions.values()
        inside = {
            session.container: min(session.jobs, key=lambda job: jobs[job].record.place if job in jobs else math.inf)
            for session in sessions
            if session.container and session.jobs
        }
        for record in self._containers.live.values():
            container, job = record.container, record.job or inside.get(record.container, "")
            if record.job or (job in jobs and jobs[job].record.user == record.user):
                before = self._job_of.get(container)
                if before is None:
                    self.cpu_s[job] = self.cpu_s.get(job, 0.0) + self.cpu_s.pop(container, 0.0)
                elif before != job and before in jobs:
                    self._began_s[container] = self._counted(record)
                elif before != job:
                    self._leave_out(record)
                    changed.append(record)
                self._job_of[container] = job
                if not (record.job or record.hosts_job):
                    record.host_job()
                    changed.append(record)
            elif self._job_of.get(container) not in jobs:
                self._job_of.pop(container, None)
        return changed
