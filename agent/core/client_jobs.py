"""Jobs and their tasks at the request of frameworks, and what the master is told of the jobs of this origin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from agent.core import events as e
from agent.core import floors, origin_journal, quotas
from agent.core.cancelled_jobs import CancelledJobs
from agent.core.instructions import Instruction, Notify, Record, Reply, SendToMaster
from agent.core.job_lifecycle import JobLifecycle
from agent.core.membership import Membership
from agent.core.ranks import Ranks
from agent.core.records import Job, JobRecord, TaskHere, job_state, journal_key
from agent.core.settings import NodeSettings
from agent.core.tasks import ROOM, HeldTasks
from penstock.model import Ended, EndedBy, TaskRequest
from penstock.model.work import StageProgress, without_skipped
from penstock.wire.agent_api import Done, EndJob, JobRegistered, Place, Progress, TaskEnded, TaskPlaced, TaskRefs
from penstock.wire.errors import RpcError, bad_request, refused, unavailable
from penstock.wire.job_end_api import JobAtEnd
from penstock.wire.master_api import JobState, ReadyTasks, TasksCancelled, TasksDone

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
            record = JobRecord(
                job=fresh, name=request.name, user=session.user, memory_bytes=0 if slack_only else request.memory_bytes,
                priority=request.priority, submitted_at=event.at, admitted=not self.settings.has_master,
                opportunistic=request.opportunistic, reservation=request.reservation,
            )  # fmt: skip
            job, instructions = self._lifecycle.add(record, now)
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
        """Ask the master to place tasks. For tasks asked for before, repeat the answers so far.

        Raises:
            RpcError: ``bad_request``: the same task twice in one request, or an amount that is negative or not a
                number; ``refused``: there would be too many tasks, or the job was registered elsewhere.
        """
        wanted = event.params
        job = self._members.job_of(event.session, wanted.job)
        if not self.settings.has_master:
            raise unavailable("this agent has no master to place tasks", remedy="set `master` in its configuration")
        opened, bounds, jobs = self._members.sessions[event.session], self.settings.quotas, self._members.jobs.values()
        quotas.check_tasks(opened, bounds, jobs, sum(task.task not in job.tasks for task in wanted.tasks))
        too_small = floors.refused_tasks(wanted.tasks, job.tasks, recovered=job.recovered)
        if too_small and not job.recovered:  # else an agent of an earlier version may have accepted the request
            raise next(iter(too_small.values()))
        for command in filter(None, (task.command for task in wanted.tasks)):
            quotas.check_pids(opened, bounds, command.limits)
        _speaks_for(job)
        _check(wanted.tasks)
        return [_DONE, *_ask_for_places(job, wanted, too_small)]

    def tasks_done(self, event: e.Requested[TaskRefs], now: float) -> list[Instruction]:
        """Free the memory of tasks that the framework finished itself, here and at the master.

        Raises:
            RpcError: ``bad_request``: one of them is a command, whose end only its process tells.
        """
        job, names = self._members.job_of(event.session, event.params.job), event.params.tasks
        if not names:
            return [_DONE]  # a framework that waits says that it is there
        for index, name in enumerate(names):
            here, placed = job.tasks.get(name), self._held.by_key.get((job.record.job, name))
            unfinished = [each.request for each in (here, placed) if each is not None and each.state != "ended"]
            if any(request.command is not None for request in unfinished):
                reason = f"task {name!r} is a command, which is done when its process ends"
                raise bad_request(reason, field=f"tasks[{index}]", remedy="cancel_tasks ends it before")
        instructions: list[Instruction] = [_DONE]
        for name in names:
            task = job.tasks.get(name)
            if task is not None and task.state != "ended":
                task.end(Ended(by=EndedBy.EXIT, exit_status=0))
                instructions += origin_journal.drop_awaited(job, name)
            if self._held.release(job.record.job, name) is not None:
                instructions.append(Record(ROOM, journal_key(job.record.job, name), None))
        return [*instructions, SendToMaster(TasksDone(job=job.record.job, tasks=names))]

    def cancel_tasks(self, event: e.Requested[TaskRefs], now: float) -> list[Instruction]:
        """Cancel tasks. Those not placed end at once; the master withdraws the others. For tasks that have ended,
        repeat their ends; report the end of unknown ones, which only an earlier agent can have known, without storing
        them.

        Raises:
            RpcError: ``refused``: the job was registered elsewhere.
        """
        job, names = self._members.job_of(event.session, event.params.job), event.params.tasks
        _speaks_for(job)
        instructions: list[Instruction] = [_DONE]
        for name in names:
            known = job.tasks.get(name)
            if known is None:
                known = TaskHere.of_earlier_agent(name)
                known.end(Ended(by=EndedBy.CANCELLED, reason="cancelled, and unknown to this agent"))
            elif known.state == "asked for":
                known.end(Ended(by=EndedBy.CANCELLED, reason="cancelled before it was placed"))
            elif known.state == "placed":
                known.cancelled = True
                instructions += origin_journal.drop_awaited(job, name)
                continue
            assert known.ended is not None
            instructions += job.notify(TaskEnded(job=job.record.job, task=name, node=known.node, ended=known.ended))
        return [*instructions, SendToMaster(TasksCancelled(job=job.record.job, tasks=names))]

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


def _speaks_for(job: Job) -> None:
    """Check that the job was registered here: the master accepts its tasks from no other node.

    Raises:
        RpcError: ``refused``: it was registered elsewhere.
    """
    if not job.record.here:
        reason = f"job {job.record.job!r} was registered on another node, which asks for its tasks"
        raise refused(reason, field="job", remedy="connect to that node's agent")


def _check(requests: list[TaskRequest]) -> None:
    seen: set[str] = set()
    for index, request in enumerate(requests):
        if request.task in seen:
            raise bad_request(f"task {request.task!r} is listed twice in one request", field=f"tasks[{index}].task")
        if not request.usage.is_valid():
            raise bad_request("expected non-negative numbers", field=f"tasks[{index}].usage")
        seen.add(request.task)


def _ask_for_places(job: Job, wanted: Place, wrong: Mapping[str, RpcError]) -> list[Instruction]:
    """Ask for places. Tasks that are ``wrong`` end as refused; the master may know them from an earlier agent, so they
    are cancelled there.
    """
    instructions: list[Instruction] = []
    fresh: list[TaskRequest] = []
    stage, opportunistic = wanted.stage, job.record.allows(wanted.stage, wanted.opportunistic)
    for request in wanted.tasks:
        known = job.tasks.get(request.task)
        if known is None:
            known = job.tasks[request.task] = TaskHere(stage, request, opportunistic)
            if request.task in wrong:
                known.end(Ended(by=EndedBy.REFUSED, reason=str(wrong[request.task])))
            else:
                fresh.append(request)
        elif not known.stage:  # the master placed it for an earlier agent, and was first to name it
            known.stage, known.request, known.opportunistic = stage, request, opportunistic
            if known.ended is None:
                fresh.append(request)  # a master that was restarted since knows the task only from its node
            instructions += origin_journal.keep_awaited(job, request.task)
        if known.node:
            instructions += job.notify(TaskPlaced(job=job.record.job, task=request.task, node=known.node))
        if known.ended is not None:
            over = TaskEnded(job=job.record.job, task=request.task, node=known.node, ended=known.ended)
            instructions += job.notify(over)
    if fresh:
        ready = ReadyTasks(job=job.record.job, stage=stage, tasks=fresh, opportunistic=opportunistic)
        instructions.append(SendToMaster(ready))
    if wrong:
        instructions.append(SendToMaster(TasksCancelled(job=job.record.job, tasks=list(wrong))))
    return instructions
