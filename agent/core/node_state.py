"""The node's state: its lower owners, which other modules read."""

from __future__ import annotations

from collections.abc import Mapping

from agent.core.attained_service import AttainedService
from agent.core.cancelled_jobs import CancelledJobs
from agent.core.command_sizes import CommandSizes
from agent.core.containers import Containers
from agent.core.elasticity import Elasticity
from agent.core.executors import Executors
from agent.core.job_cpu_times import JobCpuTimes
from agent.core.ledger import Ledger
from agent.core.membership import Membership
from agent.core.node_resources import NodeResources
from agent.core.ranks import Ranks
from agent.core.records import Job
from agent.core.reporting import RankReport
from agent.core.session import Session
from agent.core.settings import NodeSettings
from agent.core.slack import Slack
from agent.core.tasks import HeldTasks
from agent.queues import MonotaskQueues


class NodeState:
    """The jobs, slots, tasks, containers, ranks, plans and measured resources of a node."""

    def __init__(self, settings: NodeSettings, queues: MonotaskQueues | None = None) -> None:
        """``queues``: others than those of the settings."""
        self.settings = settings
        self.now = 0.0  # time of the latest event
        self.queues = queues or _queues_of(settings)
        self._members = Membership()
        self.sessions: Mapping[int, Session] = self._members.sessions
        self.jobs: Mapping[str, Job] = self._members.jobs
        self.cancelled_jobs = CancelledJobs()
        self.containers = Containers(settings.keep_ended)
        self.held = HeldTasks()
        self.elasticity = Elasticity(settings)
        self.executors = Executors(settings, self.elasticity)
        self.resources = NodeResources(settings.capacity, self.containers, self.held, self.elasticity, self.executors)
        self.cpu_times = JobCpuTimes(self._members, self.containers)
        self.command_sizes = CommandSizes(has_master=settings.has_master)
        self.ranks = Ranks(settings, self._members, self.containers, self.resources, self.cpu_times, self.command_sizes)
        self.rank_report = RankReport(self.ranks)
        self.attained = AttainedService(self.queues, self._members, self.containers, self.cpu_times)
        self.slack = Slack(settings, self.queues, self.containers, self.held, self.resources)

    def ledger(self) -> Ledger:
        """Return the sums of promised, requested and used resources now."""
        return self.resources.ledger(self.now)


def _queues_of(settings: NodeSettings) -> MonotaskQueues:
    return MonotaskQueues(
        settings.capacity,
        network_bypass_bytes=settings.network_bypass_bytes,
        rate_window_s=settings.rate_window_s,
        disk_small_bytes=settings.disk_small_bytes,
        lease_s=settings.lease_s,
        lease_kept_s=settings.lease_kept_s,
        job_wait_max_s=settings.job_wait_max_s,
        ranked=settings.ranked,
    )
