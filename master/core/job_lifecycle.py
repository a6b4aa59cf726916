"""Lifecycle of jobs: expected from other nodes' reports, described by their origin, cancelled, and ended once."""

from __future__ import annotations

from dataclasses import dataclass

from master.core import message_checks
from master.core.dues import Clock, Dues
from master.core.events import CancelRequested
from master.core.executors import Executors
from master.core.finished_jobs import FinishedJob, FinishedJobs
from master.core.job import Job
from master.core.listing import past_of
from master.core.membership import Membership
from master.core.node import Node
from master.core.order import HandOrders
from master.core.outbox import Outbox
from master.core.priorities import priority_of
from master.core.settings import CurrentSettings
from master.core.task_lifecycle import TaskLifecycle
from master.core.unlearnt_jobs import UnlearntJobs
from master.core.work import Work
from penstock.wire import master_api as api
from penstock.wire.errors import bad_request, refused, unavailable
from penstock.wire.job_end_api import JobAtEnd


@dataclass(eq=False, repr=False)
class JobLifecycle:
    """Adds, describes, cancels and ends jobs."""

    _settings: CurrentSettings
    _clock: Clock
    _dues: Dues
    _hand_orders: HandOrders
    _past: FinishedJobs
    _members: Membership
    _outbox: Outbox
    _executors: Executors
    _unlearnt: UnlearntJobs
    _tasks: TaskLifecycle

    def new_job(self, job: str, origin: str, now: float) -> Job:
        """Add a job that the master does not know yet."""
        self._unlearnt.jobs.pop(job, None)  # it had ended with its origin, and has come back
        return self._members.add_job(job, origin, now)

    def describe(self, job: Job, state: api.JobState) -> None:
        """Store the origin's description of a job."""
        first = not job.described
        job.describe(state, self._clock.now)
        if first:
            for node in [node for node, told in job.hosts.items() if told is None]:
                job.served_by(node, state.priority)
            origin = self._members.nodes[job.origin]
            origin.job_came_at = max(origin.job_came_at, job.came_at)
        job.served_by(job.origin, state.priority)
        if state.priority != job.priority:
            why = (
                f"{self._settings.current.ordering}: submitted at {job.submitted_at:.3f}, until the order is looked at"
            )
            job.priority_sent(job.origin, self._outbox.propose(job.origin, priority_of(job, why)))
        if job.admitted and not state.admitted:
            self._outbox.propose(job.origin, api.AdmitJob(job=job.job, why="admitted before the connection was lost"))

    def end_job(
        self,
        job: Job,
        why: str,
        *,
        released_by: str = "",
        lost: bool = False,
        reported: bool = True,
        listed: bool = True,
        more_to_tell: bool = True,
    ) -> None:
        """End a job: withdraw its tasks and free its reservation.

        ``why``: the reason; empty where the job's framework ended it. ``released_by``: an origin that released the
        framework's tasks there when it ended the job. ``lost``: the job ended with its origin. ``reported``: its origin
        has reported how it ended. ``listed``: the job is stored with the finished jobs. ``more_to_tell``: nodes may yet
        report more of its service.
        """
        if job.described and listed:
            ended_at = self._clock.unix(self._clock.now)
            self._past.add(past_of(job, why, ended_at, lost=lost, reported=reported))
        for task in list(job.tasks.values()):
            self._tasks.unready(job, task)
            node, held = self._members.nodes.get(task.node), self._members.held_of(task)
            if node is None or held is None:
                continue
            if node.name == released_by and not held.command and held.accepted:
                self._tasks.drop(node, held)
            else:
                self._tasks.withdraw(node, held, why or "its job ended", again=lost)  # a lost job may come back
        if job.described and listed:
            self._unlearnt.job_over(
                job,
                teaches=reported and not lost and _whole(job),
                waits=more_to_tell,
                reported=reported and not lost,
                ended_now=reported,
            )
        if job.some_executors:
            self._executors.over(job.job)
        for name in job.hosts if not lost else ():  # a lost job may come back
            if (host := self._members.nodes.get(name)) is not None:
                host.serves.discard(job.job)
        if not lost:
            self._hand_orders.over(job.job, job.user)
        for name in list(job.unconfirmed_ends):
            self._tasks.end_acknowledged(job, name)
        job.end()
        del self._members.jobs[job.job]
        self._dues.order_anew()
        self._dues.place_and_admit()

    # ------------------------------------------------------------ cancellations

    def cancel_requested(self, event: CancelRequested) -> None:
        """Cancel a current job, for its user or an operator; ignore a request for a finished or unknown one."""
        job = self._members.jobs.get(event.job)
        if job is not None and job.described:
            self._cancel(job, event.by)

    def _cancel(self, job: Job, by: str) -> None:
        """Stop the job on all its nodes: its origin ends it, as does every other node that serves it.

        The master keeps the job until the origin has confirmed, so that it does not reappear after a lost connection.
        The cancellation is stored with the finished jobs, for nodes that were away. ``by`` names the requester; the
        first requester is kept.
        """
        job.cancel(by)
        for node in dict.fromkeys([job.origin, *job.hosts]):
            self._tell_cancelled(node, job.job, job.cancelled_by)  # sent before the reports that its tasks ended
        self.stop(job)
        self._outbox.explain("job cancelled", job=job.job, name=job.name, user=job.user, by=job.cancelled_by)
        self._dues.place_and_admit()

    def stop(self, job: Job) -> None:
        """Withdraw a cancelled job's waiting and running tasks."""
        why = f"cancelled by {job.cancelled_by}"
        for task in list(job.tasks.values()):
            self._tasks.cancel(job, task, why)

    def _tell_cancelled(self, node: str, job: str, by: str) -> None:
        """Tell a node to end its part of a job, and to tell the job's clients who cancelled it."""
        self._outbox.propose(node, api.CancelJob(job=job, by=by, why=f"cancelled by {by}"))

    def repeat_cancellations(self, message: api.Register, jobs: list[Job]) -> None:
        """Repeat to a node that is back the cancellations that it has not received or not confirmed."""
        for job in jobs:
            past = self._past.get(job.job)
            by = job.cancelled_by or (past.cancelled_by if past is not None else "")
            if past is not None:
                job.ran_on.update(past.view.ran_on)
            self._past.drop(job.job)
            if by:
                self._cancel(job, by)
        for use in message.load.jobs:
            known = self._members.jobs.get(use.job)
            if known is not None:
                by = known.cancelled_by if known.origin != message.node else ""
            else:
                by = past.cancelled_by if (past := self._past.get(use.job)) is not None else ""
            if by:
                self._tell_cancelled(message.node, use.job, by)

    # ------------------------------------------------------------ messages of nodes

    def submitted(self, node: Node, message: api.JobState, now: float) -> None:
        """Add or update a job that its origin describes.

        Raises: RpcError: ``bad_request``: it is another node's job, or has no time of submission.
        """
        job = self._members.jobs.get(message.job)
        if job is not None and job.origin != node.name:
            raise bad_request(f"job {message.job!r} belongs to node {job.origin!r}", field="job")
        message_checks.check_job(message)
        if job is None:
            job = self.new_job(message.job, node.name, now)
            job.since_birth = True
        self.describe(job, message)
        self._dues.order_with_tasks(now)
        self._dues.room_changed = True

    def joined(self, node: Node, message: api.JoinJob, now: float) -> None:
        """Let a node's connection take part in another node's job.

        Raises: RpcError: ``bad_request``: the job is unknown; ``unavailable``: its node may not have registered yet;
        ``refused``: it was cancelled, or is another user's.
        """
        job = self._members.jobs.get(message.job)
        past = self._past.get(message.job)
        by = job.cancelled_by if job is not None else past.cancelled_by if past is not None else ""
        if by:
            raise refused(f"job {message.job!r} was cancelled by {by}", field="job", cancelled_by=by)
        if job is None and now < self._dues.gathers_until:
            raise unavailable("the master has just started, and not every node has registered yet", remedy="try again")
        # its own origin does not know it any more: it is over
        if job is None or not job.described or job.origin == node.name:
            raise bad_request(f"unknown job {message.job[:128]!r}", field="job", remedy="register_job first")
        if message.user not in {"", job.user}:
            raise refused(f"job {message.job!r} belongs to {job.user}", field="job")
        self._members.serve(node, job)  # the answer carries the priority
        if job.hosts[node.name] is None:  # the node is yet to be told whose it is
            self._dues.order_anew()

    def ended(self, node: Node, message: api.JobEnded, now: float) -> None:
        """End a job that its origin reports as ended.

        Raises: RpcError: ``refused``: it is another node's job; ``bad_request``: one of its times is not finite.
        """
        message_checks.check_at_end(message)
        job = self._members.jobs.get(message.job)
        if job is None:
            self._ended_away(node, message)
            return
        message_checks.job_of_origin(self._members.jobs, node, message.job)
        _store_end(job, node, message, message.use)
        listed, more = not message.merged_into, message.use is not None
        self.end_job(job, message.why, released_by=node.name, listed=listed, more_to_tell=more)

    def _ended_away(self, node: Node, message: api.JobEnded) -> None:
        """Handle the report of a job that is over already: it ended while its origin had no link to this master.

        The outcome is unknown if the job ended here with the registration or the loss of its origin, or if only a
        former master has known it. A report that is repeated, because its answer was lost, changes nothing.

        Raises: RpcError: ``refused``: no record has the job, and another node made its id.
        """
        past, at_end = self._past.get(message.job), message.at_end
        known = self._unlearnt.take_unreported(message.job, node.name) if at_end is not None else None
        settled = past is not None and (past.outcome_known or past.view.origin != node.name)
        if at_end is None or (known is None and settled):
            if message.use is not None:
                self._unlearnt.received(node, message.use)
            return
        if known is None and past is None:
            message_checks.check_maker(node, message.job)
        ended_at = min(at_end.ended_at, self._clock.unix(self._clock.now))
        if known is None and past is None and not self._past.has_room(at_end.user, ended_at):
            return  # it may have been stored and counted before
        job = known or self._known_to_its_origin(node, message.job, at_end, past)
        use = message.use
        if use is not None and not use.last and node.name in job.work.told_last:
            use = None  # its containers have ended since: the last report, which came before, has all of it
        _store_end(job, node, message, use)
        job.ended_away(at_end)
        self._hand_orders.over(job.job, job.user)
        for host in self._members.nodes.values():
            host.serves.discard(job.job)  # kept while it was lost, as it could come back
        if message.merged_into:
            self._past.drop(job.job)
            return
        self._past.add(past_of(job, message.why, ended_at))
        # Of a job known to its origin alone the work of placed tasks is unknown, and it may have been counted before.
        countable = known is not None or ((past is None or past.lost) and not at_end.tasks_ended)
        counted_s = past.view.service_container_s if past is not None and known is None else 0.0
        self._unlearnt.job_over(
            job,
            teaches=countable and _whole(job),
            waits=message.use is not None,
            ended_now=False,
            counted_s=counted_s,
        )

    def _known_to_its_origin(self, node: Node, name: str, at_end: JobAtEnd, past: FinishedJob | None) -> Job:
        """Return the record of a job that is over and that this master does not know, or only as it had ended without
        a report; it joins no other record.
        """
        work = Work()
        # An older master stored the service of a job without that of each node, from which to go on.
        if past is not None and past.expected_reports_s is not None:
            work = past.work()
            if node.name not in past.expected_reports_s:
                work.told_last.add(node.name)
        job = Job(name, node.name, sequence=0, work=work)
        state = api.JobState(
            job=name, name=at_end.name, user=at_end.user, memory_bytes=0, priority=0.0,
            submitted_at=at_end.submitted_at, reservation=at_end.reservation,
        )  # fmt: skip
        job.describe(state, self._clock.now)
        if past is not None:
            job.ran_on.update(past.view.ran_on)
        job.end()
        return job

    def attained(self, node: Node, load: api.Load) -> bool:
        """Store a node's report of the service that jobs received there, and of what they hold; return whether it may
        change the order of the jobs.
        """
        changed = False
        for use in load.jobs:
            job = self._members.jobs.get(use.job)
            if job is None:
                self._unlearnt.received(node, use)
            elif message_checks.takes_part(node, job):
                changed |= job.work.attained(node.name, use)
                if use.last:
                    if any(key[0] == job.job for key in node.held):  # the node was given more meanwhile
                        job.work.told_last.discard(node.name)
                        job.served_by(node.name, job.priority)
                        if job.hosts[node.name] is None:  # the node is yet to be told whose it is
                            self._dues.order_anew()
                elif node.name not in job.hosts:
                    job.served_by(node.name, job.priority if job.described else None)
                    changed = True
        return changed


def _whole(job: Job) -> bool:
    """Return whether a job that is over was completed, so that its size is that of a whole job."""
    return not job.cancelled_by and not job.tasks and job.work.complete


def _store_end(job: Job, node: Node, message: api.JobEnded, use: api.JobUse | None) -> None:
    """Store how a job ended, and the service that it received at its origin, ``use``, if that is still to be added."""
    if use is not None:
        job.work.attained(node.name, use)
    job.work.finished, job.work.failed, job.work.abandoned = message.done, message.failed, bool(message.why)
