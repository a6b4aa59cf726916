"""Jobs from their registration to their end, with their tasks, slots and containers on this node.

A *guest* is a job of another origin: it is here while it has tasks or connections here. A job whose origin is this node
ends when its framework says so, or when the last connection that joined it closes.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.core import origin_journal, tasks
from agent.core.attained_service import AttainedService
from agent.core.cancelled_jobs import CancelledJobs
from agent.core.containers import Containers
from agent.core.events import JobIntroduced, Requested
from agent.core.instructions import Instruction, Record, Reply, SendToMaster
from agent.core.lent_containers import LentContainers
from agent.core.membership import Membership
from agent.core.ranks import Ranks
from agent.core.records import HeldTask, Job, JobRecord, journal_key
from agent.core.session import Session
from agent.core.slot_grants import SlotGrants
from agent.queues import MonotaskQueues
from penstock.model import Ended, EndedBy
from penstock.wire.agent_api import CancelledBy, Done
from penstock.wire.errors import bad_request
from penstock.wire.jobs_api import LeaveJob
from penstock.wire.master_api import CancelJob, JobEnded

ROOM = "jobs"  # the journal's room


@dataclass(eq=False, slots=True)
class JobLifecycle:
    """Adds jobs and ends them; withdraws their tasks."""

    _has_master: bool
    _members: Membership
    _cancelled_jobs: CancelledJobs
    _queues: MonotaskQueues
    _held: tasks.HeldTasks
    _containers: Containers
    _ranks: Ranks
    _attained: AttainedService
    _slot_grants: SlotGrants
    _lent: LentContainers

    def add(self, record: JobRecord, now: float) -> tuple[Job, list[Instruction]]:
        """Add a job and its queue."""
        job = self._members.add(record)
        self._queues.add_job(record.job, record.priority, record.user)
        return job, [Record(ROOM, record.job, record), *self._ranks.look(now, record.job)]

    def welcome(self, event: JobIntroduced, now: float) -> list[Instruction]:
        """Give a job of another origin a queue here, unless it has one."""
        if event.job in self._members.jobs:
            return []
        record = JobRecord(
            job=event.job, name=event.name, user=event.user, here=False, admitted=True, priority=event.priority
        )
        return [*self._cancelled_jobs.drop(event.job), *self.add(record, now)[1]]

    # ------------------------------------------------------------ tasks

    def withdraw(self, held: HeldTask, reason: str, now: float, *, again: bool = False) -> list[Instruction]:
        """Stop a task on this node and free its resources. ``again``: it is to be placed again."""
        if held.request.command is None:
            self._held.release(held.job, held.task)
            gone = Record(tasks.ROOM, journal_key(held.job, held.task), None)
            return [gone, *self.drop_guest(held.job, now)]
        by = EndedBy.PREEMPTED if again else EndedBy.CANCELLED
        if held.container:
            return self._containers.stop(held.container, by, reason)
        return self._not_started(held, Ended(by=by, reason=reason), now)

    def hand_back(self, held: HeldTask, reason: str, now: float) -> list[Instruction]:
        """Return a command that has not started to the master, which places it elsewhere."""
        return self._not_started(held, Ended(by=EndedBy.PREEMPTED, reason=reason), now)

    def _not_started(self, held: HeldTask, ended: Ended, now: float) -> list[Instruction]:
        instructions = self._held.command_ended(held, ended)
        instructions += self._slot_grants.cancel(held, now)  # without effect on opportunistic ones: they are not queued
        return instructions + self.drop_guest(held.job, now)

    # ------------------------------------------------------------ ends

    def drop_guest(self, job: str, now: float) -> list[Instruction]:
        """Drop a job of another origin that has nothing left on this node."""
        known = self._members.jobs.get(job)
        if known is None or known.record.here or known.sessions or self._held.of_job(job):
            return []
        self._members.remove(known)
        self._attained.add_last(self._attained.over(job, now))
        self._queues.remove_job(job, now)  # it holds nothing, so nothing is freed
        instructions = [Record(ROOM, job, None), *self._lent.job_over(job)]
        self._attained.container_gone(job)
        return instructions

    def end(
        self,
        job: Job,
        now: float,
        why: str = "",
        *,
        done: bool = False,
        failed: str = "",
        merged_into: str = "",
        cancelled_by: str = "",
    ) -> list[Instruction]:
        """End a job: its queues and tasks here at once, those on other nodes through the master."""
        name = job.record.job
        self._members.remove(job)
        instructions: list[Instruction] = [Record(ROOM, name, None), *origin_journal.drop(job)]
        use = self._attained.over(name, now)
        if job.record.here and self._has_master:
            at_end = tasks.at_end(job, why, cancelled_by)
            ended = JobEnded(
                job=name, why=why, done=done, failed=failed, merged_into=merged_into, use=use, at_end=at_end
            )  # fmt: skip
            instructions.append(SendToMaster(ended))
        else:
            self._attained.add_last(use)
        instructions += self._slot_grants.remove_job(name, now)
        for held in self._held.of_job(name):
            instructions += self.withdraw(held, why or "its job ended", now)
        instructions += self._lent.job_over(name, merged_into)
        self._attained.container_gone(name)  # all may belong to another job by now
        return instructions

    def cancelled(self, job: Job, decision: CancelJob, now: float) -> list[Instruction]:
        """End what a job cancelled at the master has here, and notify its clients, wherever it was registered."""
        kept = self._cancelled_jobs.add(job.record, decision.by)
        notes = job.notify(CancelledBy(job=decision.job, by=decision.by))
        return kept + notes + self.end(job, now, f"cancelled by {decision.by}", cancelled_by=decision.by)

    # ------------------------------------------------------------ connections that end

    def left(self, event: Requested[LeaveJob], now: float) -> list[Instruction]:
        """Record that a connection, once it closes, leaves a job in order."""
        job, merged_into = event.params.job, event.params.merged_into
        self._members.job_of(event.session, job)
        if merged_into == job:
            raise bad_request("a job cannot be merged into itself", field="merged_into")
        self._members.sessions[event.session].leave(job, merged_into)
        return [Reply(Done())]

    def closed(self, session: Session, now: float) -> list[Instruction]:
        """Free the slots of a closed connection; end the jobs that no other connection has joined."""
        granted = self._queues.drop_session(session.session, sorted(session.jobs), now)
        instructions = self._slot_grants.granted(granted, now)
        for job in [self._members.jobs[name] for name in sorted(session.jobs) if name in self._members.jobs]:
            job.leave(session.session)
            if not job.sessions:
                merged_into = session.left(job.record.job)
                why = session.disconnected if merged_into is None else ""
                instructions += self._abandoned(job, now, why, merged_into)
        return instructions

    def orphans_left(self, rejoin_s: float, now: float) -> list[Instruction]:
        """End jobs whose frameworks did not return in time after a restart of the agent."""
        since = [(job, job.orphan_since) for job in self._members.jobs.values()]
        late = [job for job, at in since if at is not None and now - at > rejoin_s]
        why = "its framework did not come back after a restart of the agent"
        return [instruction for job in late for instruction in self._abandoned(job, now, why)]

    def _abandoned(self, job: Job, now: float, why: str, merged_into: str | None = None) -> list[Instruction]:
        """End a job without connections. Without ``why``, its last connection left it in order: the job is done."""
        if not job.record.here:
            return self.drop_guest(job.record.job, now)
        return self.end(job, now, why, done=not why, merged_into=merged_into or "")
