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
    ended begins at 0 again: ranked by the job's CPU time, the exit of a short job's processes would take seconds.

    Jobs beside each other in a container have it in turns. As the next agent finds only the sum of all, the container's
    record has its CPU time for jobs that are over and in earlier turns of others, and the job of the present turn.

    Jobs are ranked by all that their containers have used. Their service grows by what they have used since the agent
    started (:meth:`since_start_s`): the agent before it has counted the rest.
    """

    def __init__(self, members: Membership, containers: Containers) -> None:
        #: Job → CPU seconds of its containers.
        self.cpu_s: dict[str, float] = {}
        self._earlier_s: dict[str, float] = {}  # job → the part of it that was used under an earlier agent
        self._members = members
        self._containers = containers
        self._counted_s: dict[str, float] = {}  # container → its CPU seconds at the last count
        self._job_of: dict[str, str] = {}  # container → its job
        self._job_ended_at: dict[str, float] = {}  # container → when its job ended; until the next sample
        self._changed: set[str] = set()  # containers whose records have changed since the last count
        # container → the job of a process in it under an earlier agent, until its use then is known; "": no such job
        self._taken_back: dict[str, str] = {}

    def job_of(self, container: str) -> str:
        """Return the job of a container; its own name if it has none."""
        return self._job_of.get(container, container)

    def counted_s(self) -> dict[str, float]:
        """Return the CPU seconds of each container that are counted; also of one that began after the last count."""
        live = self._containers.live
        return {name: self._counted_s.get(name, record.cpu_told_apart_s) for name, record in live.items()}

    def since_start_s(self, job: str) -> float:
        """Return the CPU seconds that a job's containers have used since the start of this agent."""
        return self.cpu_s.get(job, 0.0) - self._earlier_s.get(job, 0.0)

    def changed(self, snapshot: Snapshot) -> bool:
        """Return whether a container has used the processor since the last count."""
        counted_s = self._counted_s
        return any(use.cpu_seconds != counted_s.get(name) for name, use in snapshot.containers.items())

    def take_back(self, record: ContainerRecord) -> None:
        """Count the CPU time of a container under an earlier agent for its jobs then, which may be over by now."""
        for job, used_s in list(record.cpu_of_jobs_s.items()):
            if job in self._members.jobs:
                self._add(job, used_s, earlier=True)
            else:
                self._leave_out(record, job, 0.0)
        self._taken_back[record.container] = record.counts_for
        if record.counts_for in self._members.jobs:
            self._job_of[record.container] = record.counts_for

    def count(self, snapshot: Snapshot | None) -> list[ContainerRecord]:
        """Count the CPU time of all containers since the last count, each for its job.

        Return the containers whose records have changed, to be journaled: another job has its turn, or a job is over.
        """
        self._assign()
        live, jobs = self._containers.live, self._members.jobs
        kept = {record.job for record in live.values()}  # a job that is over still counts the use of its containers
        self.cpu_s = {job: s for job, s in self.cpu_s.items() if job in jobs or job in kept or job in live}
        self._earlier_s = {job: s for job, s in self._earlier_s.items() if job in self.cpu_s}
        uses = snapshot.containers if snapshot is not None else {}
        before_s, self._counted_s = self._counted_s, {}
        for container, record in live.items():
            job, use = self.job_of(container), uses.get(container)
            counted_s = before_s.get(container, record.cpu_told_apart_s)
            used_s = use.cpu_seconds if use is not None else counted_s
            more_s = used_s - counted_s
            self._counted_s[container] = used_s
            before = self._taken_back.pop(container, None) if use is not None else None
            if before and before != job:
                self._count_for(before, record, more_s)
                more_s = 0.0
                if job != container:
                    self._record_turn(record, job)
            if container in self._job_ended_at and job == container:  # its job used it
                self._leave_out(record, job, more_s)
                more_s = 0.0
            if snapshot is not None and snapshot.at >= self._job_ended_at.get(container, math.inf):
                del self._job_ended_at[container]
            self._add(job, more_s, earlier=_was_counted(before, record))
        changed = [live[container] for container in sorted(self._changed) if container in live]
        self._changed.clear()
        return changed

    def end(self, record: ContainerRecord, cpu_s: float, *, goes_on: bool = False) -> None:
        """Count all CPU time of a container that has ended, or that leaves its job and ``goes_on``, as the job's."""
        container = record.container
        before = self._taken_back.pop(container, None)
        job = before or self._job_of.get(container, record.job)
        counted_s = self._counted_s.pop(container, record.cpu_told_apart_s)
        self._job_ended_at.pop(container, None)
        used_s = max(cpu_s, counted_s)  # for a container whose end was not observed, the sampled time
        if job:
            self._add(job, used_s - counted_s, earlier=_was_counted(before, record))
        if goes_on:
            self._counted_s[container] = used_s
            self._leave_out(record, job, self._turn_s(record))
        self._job_of.pop(container, None)

    def job_ended(self, job: str, now: float) -> None:
        """Count the CPU time of containers from now on as their own, where a process in them had registered the job."""
        for container, record in self._containers.live.items():
            if not record.job and self._job_of.get(container) == job:
                self._leave_out(record, job, self._turn_s(record))
                record.host_job("")
                del self._job_of[container]
                self._job_ended_at[container] = now
            elif job in record.cpu_of_jobs_s:
                self._leave_out(record, job, 0.0)

    def drop(self, job: str) -> None:
        """Drop the CPU time of a job that is over."""
        self.cpu_s.pop(job, None)
        self._earlier_s.pop(job, None)

    def _add(self, job: str, used_s: float, *, earlier: bool = False) -> None:
        """Count CPU time for a job. ``earlier``: it was used under an earlier agent."""
        self.cpu_s[job] = self.cpu_s.get(job, 0.0) + used_s
        if earlier:
            self._earlier_s[job] = self._earlier_s.get(job, 0.0) + used_s

    def _turn_s(self, record: ContainerRecord) -> float:
        """Return the CPU time of a container since its present job took its turn."""
        return self._counted_s.get(record.container, record.cpu_told_apart_s) - record.cpu_told_apart_s

    def _record_turn(self, record: ContainerRecord, job: str) -> None:
        """Record the job of a container's present turn; not before it is known what it used for the job of an earlier
        agent: the next agent counts that for the recorded one.
        """
        if not record.job and record.counts_for != job and not self._taken_back.get(record.container):
            record.host_job(job)
            self._changed.add(record.container)

    def _end_turn(self, record: ContainerRecord, job: str, used_s: float) -> None:
        """Record the CPU time of a container in a turn of a job that is over."""
        record.end_turn(job, used_s)
        self._changed.add(record.container)

    def _count_for(self, earlier: str, record: ContainerRecord, used_s: float) -> None:
        """Count the CPU time of a container under an earlier agent for its job then, which is not its present one."""
        if earlier in self._members.jobs:
            self._add(earlier, used_s, earlier=True)
            self._end_turn(record, earlier, used_s)
        else:
            self._leave_out(record, earlier, used_s)

    def _leave_out(self, record: ContainerRecord, job: str, used_s: float) -> None:
        """Leave what a container used for a job that is over, ``used_s`` in its last turn, out of what it used for
        others.
        """
        record.leave_out(used_s, job)
        self._changed.add(record.container)

    def _assign(self) -> None:
        """Assign containers to the job that they were placed for, or that a process in them registered: of a
        connection with several jobs, the first.
        """
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
                    self._end_turn(record, before, self._turn_s(record))
                elif before != job:
                    self._leave_out(record, before, self._turn_s(record))
                self._job_of[container] = job
                self._record_turn(record, job)
            elif self._job_of.get(container) not in jobs:
                self._job_of.pop(container, None)


def _was_counted(before: str | None, record: ContainerRecord) -> bool:
    """Return whether an earlier agent counted for a job what a container had used when it was first read here.
    ``before`` is the job of a process in it under that agent; None: the container is this agent's, or was read here
    already. What it used without a job is still to be reported, of the first job that a process in it registers.
    """
    return before is not None and bool(before or record.job)
