"""Lifecycle of jobs: expected from other nodes' reports, described by their origin, and ended once."""

from __future__ import annotations

from master.core import message_checks
from master.core.clock import Clock
from master.core.dues import Dues
from master.core.executors import Executors
from master.core.finished_jobs import FinishedJobs
from master.core.learning import Learning
from master.core.listing import past_of
from master.core.membership import Membership
from master.core.order import HandOrders
from master.core.outbox import Outbox
from master.core.priorities import first_priority, priority_of
from master.core.records import Job, Node
from master.core.settings import MasterSettings
from master.core.task_lifecycle import TaskLifecycle
from penstock.wire import master_api as api
from penstock.wire.errors import bad_request, refused


class JobLifecycle:
    """Adds, describes and ends jobs."""

    def __init__(
        self,
        settings: MasterSettings,
        clock: Clock,
        dues: Dues,
        hand_orders: HandOrders,
        past: FinishedJobs,
        members: Membership,
        outbox: Outbox,
        executors: Executors,
        learning: Learning,
        tasks: TaskLifecycle,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._dues = dues
        self._hand_orders = hand_orders
        self._past = past
        self._members = members
        self._outbox = outbox
        self._executors = executors
        self._learning = learning
        self._tasks = tasks

    def reconfigure(self, settings: MasterSettings) -> None:
        """Apply new settings."""
        self._settings = settings

    def new_job(self, job: str, origin: str, now: float) -> Job:
        """Add a job that the master does not know yet."""
        self._learning.came_back(job)
        return self._members.add_job(job, origin, now)

    def describe(self, job: Job, state: api.JobState) -> None:
        """Store the origin's description of a job."""
        job.name, job.user = state.name, state.user
        job.memory_bytes, job.submitted_at, job.reservation = state.memory_bytes, state.submitted_at, state.reservation
        if not job.described:
            # A job admitted by a former master keeps the priority that all agents know from that master.
            job.priority = state.priority if state.admitted else first_priority(state.submitted_at)
            for node in [node for node, told in job.hosts.items() if told is None]:
                job.served_by(node, state.priority)
            job.came_at = self._members.nodes[job.origin].job_came_at = self._clock.now
        job.described = True
        job.work.tell(state.stages)
        job.served_by(job.origin, state.priority)
        if state.priority != job.priority:
            why = f"{self._settings.ordering}: submitted at {job.submitted_at:.3f}, until the order is looked at"
            job.told(job.origin, self._outbox.propose(job.origin, priority_of(job, why)))
        self._dues.order_anew()
        job.admitted = job.admitted or state.admitted  # memory reserved before a restart of the master stays reserved
        if job.admitted and not state.admitted:
            self._outbox.propose(job.origin, api.AdmitJob(job=job.job, why="admitted before the connection was lost"))

    def end_job(
        self,
        job: Job,
        why: str,
        *,
        told: str = "",
        released_by: str = "",
        lost: bool = False,
        listed: bool = True,
        more_to_tell: bool = True,
    ) -> None:
        """End a job: withdraw its tasks and free its reservation.

        ``told``: the reason, where the job's framework did not end it. ``released_by``: an origin that released the
        framework's tasks there when it ended the job. ``lost``: the job ended with its origin. ``listed``: the job is
        stored with the finished jobs. ``more_to_tell``: nodes may yet report more of its service.
        """
        if job.described and listed:
            self._past.remember(past_of(job, told, self._clock.unix(self._clock.now), lost=lost))
        for task in list(job.tasks.values()):
            self._tasks.unready(job, task)
            node, held = self._members.nodes.get(task.node), self._members.held_of(task)
            if node is None or held is None:
                continue
            if node.name == released_by and not held.command and held.accepted:
                self._tasks.drop(node, held)
            else:
                self._tasks.withdraw(node, held, why)
        if job.described and listed:
            self._learning.job_over(job, teaches=not job.tasks and job.work.complete, waits=more_to_tell)
        if job.some_executors:
            self._executors.over(job.job)
        for name in job.hosts if not lost else ():  # a lost job may come back
            if (host := self._members.nodes.get(name)) is not None:
                host.serves.discard(job.job)
        if not lost:
            self._hand_orders.over(job.job, job.user)
        for name in list(job.untold):
            self._tasks.heard(job, name)
        del self._members.jobs[job.job]
        self._dues.order_anew()
        self._dues.place_and_admit()

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
        self._dues.job_described()

    def joined(self, node: Node, message: api.JoinJob, now: float) -> None:
        """Let a node's connection take part in another node's job.

        Raises: RpcError: ``bad_request``: the job is unknown; ``refused``: it was cancelled, or is another user's.
        """
        job = self._members.jobs.get(message.job)
        past = self._past.get(message.job)
        by = job.cancelled_by if job is not None else past.cancelled_by if past is not None else ""
        if by:
            raise refused(f"job {message.job!r} was cancelled by {by}", field="job")
        # its own origin does not know it any more: it is over
        if job is None or not job.described or job.origin == node.name:
            raise bad_request(f"unknown job {message.job[:128]!r}", field="job", remedy="register_job first")
        if message.user not in {"", job.user}:
            raise refused(f"job {message.job!r} belongs to {job.user}", field="job")
        job.served_by(node.name, job.priority)  # the answer carries the priority
        job.work.told_last.discard(node.name)
        node.job_came_at = max(node.job_came_at, job.came_at)
        node.serves.add(job.job)

    def ended(self, node: Node, message: api.JobEnded, now: float) -> None:
        """End a job that its origin reports as ended.

        Raises: RpcError: ``refused``: it is another node's job.
        """
        job = self._members.jobs.get(message.job)
        if job is None:  # registration has already shown that it ended
            if message.use is not None:
                self._learning.received(node, message.use)
            return
        message_checks.job_of_origin(self._members.jobs, node, message.job)
        if message.use is not None:
            job.work.attained(node.name, message.use)
        why = message.why or "its job ended"
        job.work.finished = message.done
        told, listed = message.why, not message.merged_into
        more = message.use is not None
        self.end_job(job, why, told=told, released_by=node.name, listed=listed, more_to_tell=more)

    def attained(self, node: Node, load: api.Load) -> None:
        """Store a node's report of the service that jobs received there, and of what they hold."""
        for use in load.jobs:
            job = self._members.jobs.get(use.job)
            if job is None:
                self._learning.received(node, use)
            elif message_checks.takes_part(node, job):
                job.work.attained(node.name, use)
                if use.last:
                    if any(key[0] == job.job for key in node.held):  # the node was given more meanwhile
                        job.work.told_last.discard(node.name)
                elif node.name not in job.hosts:
                    job.served_by(node.name, job.priority if job.described else None)
