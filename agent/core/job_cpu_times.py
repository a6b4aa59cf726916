"""The CPU time of each job's containers on this node, by which jobs are ranked and their service is reported."""

from __future__ import annotations

from agent.core.containers import Containers
from agent.core.membership import Membership
from agent.core.records import ContainerRecord
from agent.core.snapshot import Snapshot


class JobCpuTimes:
    """Counts the CPU time of jobs, including that of promised and opportunistic containers.

    A container without a job is counted under its own name. One that outlives its job begins at 0: its rank would fall
    by what the job used, and the exit of a short job's processes would take seconds.
    """

    def __init__(self, members: Membership, containers: Containers) -> None:
        #: Job → CPU seconds of its containers.
        self.cpu_s: dict[str, float] = {}
        self._members = members
        self._containers = containers
        self._ended_s: dict[str, float] = {}  # job → CPU seconds of its ended containers
        self._counted_s: dict[str, float] = {}  # container → its part of ``cpu_s``
        self._job_of: dict[str, str] = {}  # container → its job
        self._earlier_s: dict[str, float] = {}  # container → its part that counts for jobs in it that are over
        self._over_at: dict[str, float] = {}  # container → when its job ended; until the first sample after that

    def job_of(self, container: str) -> str:
        """Return the job of a container; its own name if it has none."""
        return self._job_of.get(container, container)

    def changed(self, snapshot: Snapshot) -> bool:
        """Return whether a container has used the processor since the last count."""
        counted_s = self._counted_s
        return any(use.cpu_seconds != counted_s.get(name) for name, use in snapshot.containers.items())

    def count(self, snapshot: Snapshot | None) -> list[ContainerRecord]:
        """Count the CPU time of all containers anew, each for its job.

        Return the containers of which a process takes part in a job for the first time: that is to be journaled.
        """
        for container, over_at in list(self._over_at.items()):
            if snapshot is not None and snapshot.at >= over_at and container in snapshot.containers:
                self._earlier_s[container] = snapshot.containers[container].cpu_seconds
                del self._over_at[container]
        hosts = self._assign()
        live, jobs = self._containers.live.values(), self._members.jobs
        kept = {record.job for record in live}  # a job that is over still counts the use of its containers
        self._ended_s = {job: used_s for job, used_s in self._ended_s.items() if job in jobs or job in kept}
        uses = snapshot.containers if snapshot is not None else {}
        cpu_s, counted_s = {**self._ended_s}, dict[str, float]()
        for record in live:
            container = record.container
            job, use = self.job_of(container), uses.get(container)
            used_s = use.cpu_seconds if use is not None else self._counted_s.get(container, 0.0)
            counted_s[container] = used_s
            cpu_s[job] = cpu_s.get(job, 0.0) + self._own_s(container, used_s)
        self.cpu_s, self._counted_s = cpu_s, counted_s
        return hosts

    def end(self, record: ContainerRecord, cpu_s: float) -> None:
        """Count all CPU time of a container that has ended or leaves its job as the job's."""
        job = self._job_of.pop(record.container, record.job)
        counted_s = self._counted_s.pop(record.container, 0.0)
        if job:
            used_s = max(cpu_s, counted_s)  # for a container whose end was not observed, the sampled time
            own_s, own_counted_s = self._own_s(record.container, used_s), self._own_s(record.container, counted_s)
            self._ended_s[job] = self._ended_s.get(job, 0.0) + own_s
            self.cpu_s[job] = self.cpu_s.get(job, 0.0) + own_s - own_counted_s
        self._earlier_s.pop(record.container, None)
        self._over_at.pop(record.container, None)

    def drop(self, job: str) -> None:
        """Drop the CPU time of a job that is over."""
        self._ended_s.pop(job, None)
        self.cpu_s.pop(job, None)

    def over(self, job: str, now: float) -> None:
        """Have the containers that outlive a job, as a process in them had registered it, begin at 0."""
        for container, record in self._containers.live.items():
            if not record.job and self._job_of.get(container) == job:
                del self._job_of[container]
                self._over_at[container] = now

    def _own_s(self, container: str, used_s: float) -> float:
        """Return the part of a container's CPU seconds that counts for its present job, or for itself."""
        return 0.0 if container in self._over_at else used_s - self._earlier_s.get(container, 0.0)

    def _assign(self) -> list[ContainerRecord]:
        """Assign containers to the job that they were placed for, or that a process in them registered.

        Return those of which a process takes part in a job for the first time.
        """
        hosts = []
        jobs, sessions = self._members.jobs, self._members.sessions.values()
        inside = {session.container: min(session.jobs) for session in sessions if session.container and session.jobs}
        for record in self._containers.live.values():
            job = record.job or inside.get(record.container, "")
            if record.job or (job in jobs and jobs[job].record.user == record.user):
                self._job_of[record.container] = job
                if not (record.job or record.hosts_job):
                    record.host_job()
                    hosts.append(record)
        return hosts
