"""Which node may say what of a job: everything its origin, that tasks are done whoever takes part in it.

A node is believed about itself: what it holds, whom it serves, and who asked it to join. What no honest agent would say
is refused here, so that one node's mistakes, or its owner's, stay its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from master.core.records import Job, Node
from penstock.wire import master_api as api
from penstock.wire.errors import bad_request, refused

if TYPE_CHECKING:
    from master.core.cluster import Cluster


def own(cluster: Cluster, node: Node, job: str) -> Job:
    """A job of this origin.

    Raises:
        RpcError: ``bad_request``: there is none; ``refused``: it is another one's.
    """
    known = cluster.jobs.get(job)
    if known is None:
        raise bad_request(f"unknown job {job[:128]!r}", field="job", remedy="job_submitted first")
    if known.origin != node.name:
        raise refused(f"job {job!r} belongs to node {known.origin!r}", field="job")
    return known


def takes_part(node: Node, job: Job) -> bool:
    """Whether it registered the job, or joined it, or was given something of it."""
    return node.name == job.origin or node.name in job.hosts or job.job in node.serves


def check_part(node: Node, job: Job) -> None:
    """Raises: RpcError: ``refused``: it is none of this node's business."""
    if not takes_part(node, job) and not any(key[0] == job.job for key in node.held):
        raise refused(
            f"job {job.job!r} belongs to node {job.origin!r}; {node.name!r} has neither joined it nor a task of it",
            field="job",
            remedy="register_job with `job`",
        )


def check_registration(cluster: Cluster, message: api.Register) -> None:
    """A node names jobs as its own, and wants tasks of no others.

    Raises:
        RpcError: ``bad_request``: one belongs to another node. After a restart of ours that is known from who came
            first, and may be wrong: whose name an id carries is believed rather.
    """
    for state in message.jobs:
        known = cluster.jobs.get(state.job)
        if known is not None and known.origin != message.node != maker(state.job):
            raise bad_request(f"job {state.job!r} belongs to node {known.origin!r}", field="jobs")
    named = {"ready": [each.job for each in message.ready], "awaited": [each.job for each in message.awaited]}
    listed = {state.job for state in message.jobs}
    for field, jobs in named.items():
        for index, job in enumerate(jobs):
            if job not in listed:
                raise bad_request(f"job {job[:128]!r} is not among `jobs`", field=f"{field}[{index}].job")


def maker(job: str) -> str:
    """The node whose agent made an id, as agents make them: its name, what that run of it is called, a number."""
    return job.rsplit("-", 2)[0]
