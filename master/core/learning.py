"""Learning from finished jobs: the service received on all nodes that served the job, counted once.

When the origin ends a job, it reports the service that the job received there. Other nodes, and an origin that still
runs containers of the job, report their last part with their next heartbeat. The job is counted when the last node has
reported, or after :data:`PATIENCE` heartbeats.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from master.core.history import Needed
from master.core.work import Work
from master.ordering.sizes import LEAST

if TYPE_CHECKING:
    from master.core.cluster import Cluster
    from master.core.records import Job, Node
    from penstock.wire.master_api import JobUse

#: Heartbeats for which a finished job waits for the last report of its service.
PATIENCE = 3


@dataclass(slots=True)
class Unlearnt:
    """A finished job, and the nodes that have yet to report the last part of its service.

    ``teaches``: the job was completed, so its size is that of a whole job. ``at_least``: the size to use where no node
    reported any service. ``lengths_s``: the time since its admission, if known.
    """

    user: str
    name: str
    application: str
    work: Work
    teaches: bool
    at_least: float
    waits_for: set[str]
    due: float  # monotonic
    lengths_s: tuple[float, ...]


def job_over(cluster: Cluster, job: Job, *, teaches: bool, waits: bool) -> None:
    """Count a finished job, or store it until it can be counted; ``waits``: its nodes may have more to report."""
    some = LEAST if job.work.done and not job.executors_of else 0.0
    nodes = {name for name in {job.origin, *job.hosts, *job.work.seen} if waits and _may_tell(cluster, job, name)}
    due = cluster.clock.now + PATIENCE * cluster.settings.heartbeat_s
    lengths_s = () if job.admitted_at is None else (cluster.clock.now - job.admitted_at,)
    over = Unlearnt(job.user, job.name, job.application, job.work, teaches, some, nodes, due, lengths_s)
    if nodes:
        cluster.unlearnt[job.job] = over
    else:
        _learn(cluster, job.job, over)


def received(cluster: Cluster, node: Node, use: JobUse) -> None:
    """Add a node's report on a finished job."""
    over = cluster.unlearnt.get(use.job)
    if over is None or node.name not in over.waits_for:
        return
    over.work.attained(node.name, use)
    if use.last:
        _told(cluster, use.job, over, node.name)


def node_lost(cluster: Cluster, node: str) -> None:
    """Stop waiting for a lost node's reports."""
    for job, over in list(cluster.unlearnt.items()):
        _told(cluster, job, over, node)


def overdue(cluster: Cluster, now: float) -> None:
    """Count the jobs whose time to wait is over."""
    while cluster.unlearnt:
        job, over = next(iter(cluster.unlearnt.items()))
        if now < over.due:
            return
        del cluster.unlearnt[job]
        _learn(cluster, job, over)


def _may_tell(cluster: Cluster, job: Job, name: str) -> bool:
    node = cluster.members.nodes.get(name)
    return node is not None and node.connected and name not in job.work.told_last


def _told(cluster: Cluster, job: str, over: Unlearnt, node: str) -> None:
    over.waits_for.discard(node)
    if not over.waits_for:
        del cluster.unlearnt[job]
        _learn(cluster, job, over)


def _learn(cluster: Cluster, job: str, over: Unlearnt) -> None:
    service_s = over.work.service_s
    if over.teaches:
        cluster.history.learn((over.user, over.name), Needed(tuple(over.work.ended), service_s, over.lengths_s))
        # Older agents report no service for jobs shorter than a heartbeat: then use the smallest size.
        cluster.sizes.learn(over.user, over.application, service_s or over.at_least)
        cluster.dues.order_anew()
    past = cluster.past.get(job)
    if past is not None and past.view.service_container_s != service_s:
        view = msgspec.structs.replace(past.view, service_container_s=service_s)
        cluster.past.remember(replace(past, view=view))
