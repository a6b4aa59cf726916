"""Learning from finished jobs: the service received on all nodes that served the job, counted once.

When the origin ends a job, it reports the service that the job received there. Other nodes, and an origin that still
runs containers of the job, report their last part with their next heartbeat. The job is counted when the last node has
reported, or after :data:`PATIENCE` heartbeats.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from master.core.dues import Clock, Dues
from master.core.finished_jobs import FinishedJobs
from master.core.history import History, Needed
from master.core.job import Job
from master.core.membership import Membership
from master.core.node import Node
from master.core.order import Order
from master.core.settings import CurrentSettings
from master.ordering import JobSizes
from master.ordering.sizes import LEAST
from penstock.wire.cluster_api import CommandUse
from penstock.wire.master_api import JobUse

#: Heartbeats for which a finished job waits for the last report of its service.
PATIENCE = 3


@dataclass(slots=True)
class Unlearnt:
    """A finished job, and the nodes that have yet to report the last part of its service.

    ``teaches``: the job was completed, so its size is that of a whole job. ``lengths_s``: the time since its admission,
    if known. ``reported``: its origin has reported how it ended. ``counted_s``: the service that its tenant was charged
    for when the job was over before.
    """

    job: Job
    teaches: bool
    waits_for: set[str]
    due: float  # monotonic
    lengths_s: tuple[float, ...]
    reported: bool
    counted_s: float


@dataclass(eq=False, repr=False)
class UnlearntJobs:
    """The finished jobs that are still to be learnt from."""

    _settings: CurrentSettings
    _clock: Clock
    _dues: Dues
    _history: History
    _past: FinishedJobs
    _sizes: JobSizes
    _members: Membership
    _order: Order
    jobs: dict[str, Unlearnt] = field(init=False, default_factory=dict)  # by due time

    def job_over(
        self,
        job: Job,
        *,
        teaches: bool,
        waits: bool,
        reported: bool = True,
        ended_now: bool = True,
        counted_s: float = 0.0,
    ) -> None:
        """Count a finished job, or store it until it can be counted.

        ``waits``: its nodes may have more to report. ``reported``: its origin has reported how it ended. ``ended_now``:
        so its length is known. ``counted_s``: service that its tenant has been charged for.
        """
        nodes = {name for name in job.expected_reports_s if waits and self._is_connected(name)}
        due = self._clock.now + PATIENCE * self._settings.current.heartbeat_s
        lengths_s = (self._clock.now - job.admitted_at,) if ended_now and job.admitted_at is not None else ()
        over = Unlearnt(job, teaches, nodes, due, lengths_s, reported, counted_s)
        if nodes:
            self.jobs[job.job] = over
        else:
            self._learn(over)

    def received(self, node: Node, use: JobUse) -> None:
        """Add a node's report on a finished job."""
        over = self.jobs.get(use.job)
        if over is None:
            self._received_late(node.name, use)
            return
        if node.name not in over.job.expected_reports_s:
            return
        over.job.work.attained(node.name, use)
        if use.last:
            self._told(over, node.name)

    def awaits_outcome(self, job: str) -> bool:
        """Return whether the origin of a finished job is back, and has yet to report how the job ended."""
        over = self.jobs.get(job)
        return over is not None and not over.reported and over.job.origin in over.waits_for

    def take_unreported(self, job: str, origin: str) -> Job | None:
        """Return a finished job whose end this origin has yet to report, no longer stored here; None: there is none."""
        over = self.jobs.get(job)
        if over is None or over.reported or over.job.origin != origin:
            return None
        del self.jobs[job]
        return over.job

    def commands_ended(self, commands: Iterable[CommandUse]) -> None:
        """Learn from completed commands of no job, whose whole use their node reports at once.

        The next order, due within a heartbeat, counts them: no job has come or gone.
        """
        for each in commands:
            self._sizes.learn_command(each.user, each.name, each.cpu_s)

    def node_lost(self, node: str) -> None:
        """Stop waiting for a lost node's reports."""
        for over in list(self.jobs.values()):
            self._told(over, node)

    def overdue(self, now: float) -> None:
        """Count the jobs whose time to wait is over."""
        while self.jobs:
            over = next(iter(self.jobs.values()))
            if now < over.due:
                return
            del self.jobs[over.job.job]
            self._learn(over)

    def _received_late(self, node: str, use: JobUse) -> None:
        """Add a node's report on a job that ended without its origin's report, and has been counted since.

        The last report is stored, with the earlier ones. Those are lost with the master alone, as the last one has all
        of the job's service on the node, unless its agent is restarted in between and counts from 0.
        """
        past = self._past.get(use.job)
        if past is None or node not in (past.expected_reports_s or {}):
            return
        work = past.work()
        work.attained(node, use)
        gained_s, counted = work.service_s - past.view.service_container_s, past.with_service_of(work)
        if not use.last and not gained_s:  # an agent that is linked again may say 0 before its last report
            return
        self._order.ended(use.job, past.view.user, gained_s)
        if use.last:
            self._past.add(counted)
        else:
            self._past.update(counted)

    def _is_connected(self, name: str) -> bool:
        node = self._members.nodes.get(name)
        return node is not None and node.connected

    def _told(self, over: Unlearnt, node: str) -> None:
        over.waits_for.discard(node)
        if not over.waits_for:
            del self.jobs[over.job.job]
            self._learn(over)

    def _learn(self, over: Unlearnt) -> None:
        job, service_s = over.job, over.job.work.service_s
        self._order.ended(job.job, job.user, max(0.0, service_s - over.counted_s))
        if over.teaches:
            self._history.learn((job.user, job.name), Needed(tuple(job.work.ended), service_s, over.lengths_s))
            # Older agents report no service for jobs shorter than a heartbeat: then use the smallest size.
            some = LEAST if job.work.done and not job.executors_of else 0.0
            self._sizes.learn(job.user, job.application, service_s or some)
            self._dues.order_anew()
        past = self._past.get(job.job)
        if past is not None and (counted := past.with_service_of(job.work)) != past:
            self._past.add(counted)
