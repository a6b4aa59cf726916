"""Jobs and their tasks at the request of frameworks, and what the master is told of the jobs of this origin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from agent.core import events as e
from agent.core import floors, origin_journal, quotas, tasks
from agent.core.cancelled_jobs import CancelledJobs
from agent.core.instructions import Instruction, Notify, Reply, SendToMaster
from agent.core.job_lifecycle import JobLifecycle
from agent.core.membership import Membership
from agent.core.ranks import Ranks
from agent.core.records import Job, JobRecord, job_state
from agent.core.settings import NodeSettings
from agent.core.tasks import HeldTasks
from penstock.model.work import StageProgress, without_skipped
from penstock.wire.agent_api import Done, EndJob, JobRegistered, Place, Progress, TaskRefs
from penstock.wire.errors import bad_request, unavailable
from penstock.wire.job_end_api import JobAtEnd
from penstock.wire.master_api import JobState

_DONE = Reply(Done())


@dataclass(eq=False, slots=True)
class ClientJobs:
    """Carries out the requests on jobs. Tasks that are to be placed, and progress, go to the master."""

    settings: NodeSettings
    _members: Membership
    _cancelled_jobs: CancelledJobs
    _held: HeldTasks
    _ranks: Ranks
    _lifecycle: JobLifecycle
    _ids: Iterator[str]
    _skipped_read: bool = field(init=False, default=False)  # by the master: skipped tasks

    # ------------------------------------------------------------ requests

    def register(self, event: e.JobRegistered, now: float) -> list[Instruction]:
        """Register a job, or let the connection join one."""
        session = self._members.sessions[event.session]
        request = event.request
        if request.priority != request.priority:
            raise bad_request("not a number", field="priority")
        if request.job in self._cancelled_jobs and request.job not in self._members.jobs:
            notification = self._cancelled_jobs.notification(session, request.job)
            return [notification, Reply(JobRegistered(job=request.job, admitted=False))]
        if request.job:
            job = self._members.job_of(event.session, request.job, member=False)
            instructions: list[Instruction] = [Notify(event.session, job.waiting())] if job.waits else []
            instructions += [Notify(event.session, ended) for ended in origin_journal.own_ends(job)]
        else:
            quotas.check_job(session, self.settings.quotas, self._members.jobs.values())
            fresh = f"{self.settings.node}-{next(self._ids)}"
            slack_only = request.opportunistic == "only"  # it takes nothing that could be reserved
            alone = not self.settings.has_master
            record = JobRecord(
                job=fresh, name=request.name, user=session.user, memory_bytes=0 if slack_only else request.memory_bytes,
                priority=request.priority, ordered=alone, submitted_at=event.at, admitted=alone,
                opportunistic=request.opportunistic, reservation=request.reservation,
            )  # fmt: skip
            job, instructions = self._lifecycle.add(record, now, inside=session.container)
            if self.settings.has_master:
                instructions.append(SendToMaster(job_state(record)))
        self._members.join(session, job)
        reply = JobRegistered(job=job.record.job, admitted=job.record.admitted)
        return [Reply(reply), *instructions, *(self._ranks.rank(now) if session.container else ())]

    def end(self, event: e.Requested[EndJob], now: float) -> list[Instruction]:
        """End a job."""
        job = self._members.job_of(event.session, event.params.job)
        return [_DONE, *self._lifecycle.end(job, now, failed=event.params.failed)]

    def place(self, event: e.Requested[Place], now: float) -> list[Instruction]:
        """Ask the master to place tasks."""
        wanted = event.params
        job = self._members.job_of(event.session, wanted.job)
        if not self.settings.has_master:
            raise unavailable("this agent has no master to place tasks", remedy="set `master` in its configuration")
        opened, bounds, jobs = self._members.sessions[event.session], self.settings.quotas, self._members.jobs.values()
        quotas.check_tasks(opened, bounds, jobs, sum(task.task not in job.tasks for task in wanted.tasks))
        refused = floors.refused_tasks(wanted.tasks, job.tasks, recovered=job.recovered)
        if refused and not job.recovered:  # else an agent of an earlier version may have accepted the request
            raise next(iter(refused.values()))
        for command in filter(None, (task.command for task in wanted.tasks)):
            quotas.check_pids(opened, bounds, command.limits)
        return [_DONE, *tasks.place(job, wanted.stage, wanted.tasks, wanted.opportunistic, refused)]

    def tasks_done(self, event: e.Requested[TaskRefs], now: float) -> list[Instruction]:
        """Free the memory of tasks that the framework finished itself."""
        job = self._members.job_of(event.session, event.params.job)
        return [_DONE, *tasks.done(job, event.params.tasks, self._held)]

    def cancel_tasks(self, event: e.Requested[TaskRefs], now: float) -> list[Instruction]:
        """Cancel tasks, placed or not."""
        job = self._members.job_of(event.session, event.params.job)
        return [_DONE, *tasks.cancel(job, event.params.tasks)]

    def progress(self, event: e.Requested[Progress], now: float) -> list[Instruction]:
        """Store the progress: the master orders jobs by it, and is told again if it rebuilds its state."""
        job = self._members.job_of(event.session, event.params.job)
        has_news = job.report(event.params.stages)
        if not (job.record.here and self.settings.has_master):
            return [_DONE]
        message = Progress(job=event.params.job, stages=self._stages_for_master(event.params.stages))
        return [_DONE, SendToMaster(message, may_wait=not has_news)]

    # ------------------------------------------------------------ for the master

    def link_opens(self) -> None:
        """Start over on a new connection: it is not known yet whether its master reads skipped tasks."""
        self._skipped_read = False

    def states(self) -> list[JobState]:
        """Return the jobs whose origin is this node, for a master that rebuilds its state."""
        return [job_state(job.record, self._stages_for_master(job.stages)) for job in self._here()]

    def skipped_progress(self, *, read: bool) -> list[Progress]:
        """Return the skipped tasks of jobs, which the registration lacks, if the master reads them (``read``)."""
        self._skipped_read = read
        skipping = [job for job in self._here() if any(stage.skipped for stage in job.stages)]
        return [Progress(job=job.record.job, stages=job.stages) for job in skipping] if read else []

    def at_end_for_master(self, at_end: JobAtEnd | None) -> JobAtEnd | None:
        """Return the record of an ended job as the master reads it."""
        return at_end and replace(at_end, stages=self._stages_for_master(at_end.stages))

    def _stages_for_master(self, stages: list[StageProgress]) -> list[StageProgress]:
        return stages if self._skipped_read else without_skipped(stages)

    def _here(self) -> list[Job]:
        return [job for job in self._members.jobs.values() if job.record.here]
