"""PURE. Checks of agents' messages: the node may send this about the job, and calculations may use its numbers.

A job's origin may send all messages about it, every participant that tasks are done. A node's reports about itself are
trusted: its holdings, the jobs it serves, and the users who asked it to join. Messages that a correct agent never sends
are refused here, so that one faulty or malicious node affects only itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from master.core.job import Job
from master.core.node import Node
from penstock.wire import master_api as api
from penstock.wire.errors import bad_request, refused


def job_of_origin(jobs: Mapping[str, Job], node: Node, job: str) -> Job:
    """Return a job of this origin.

    Raises: RpcError: ``bad_request``: the job is unknown; ``refused``: it belongs to another node.
    """
    known = jobs.get(job)
    if known is None:
        raise bad_request(f"unknown job {job[:128]!r}", field="job", remedy="job_submitted first")
    if known.origin != node.name:
        raise refused(f"job {job!r} belongs to node {known.origin!r}", field="job")
    return known


def takes_part(node: Node, job: Job) -> bool:
    """Return whether the node registered the job, joined it, or was assigned a task of it."""
    return node.name == job.origin or node.name in job.hosts or job.job in node.serves


def check_part(node: Node, job: Job) -> None:
    """Raises: RpcError: ``refused``: the node does not take part in the job."""
    if not takes_part(node, job) and not any(key[0] == job.job for key in node.held):
        raise refused(
            f"job {job.job!r} belongs to node {job.origin!r}; {node.name!r} has neither joined it nor a task of it",
            field="job",
            remedy="register_job with `job`",
        )


def check_registration(known: Mapping[str, Job], message: api.Register) -> None:
    """Check that a node registers only its own jobs, and wants tasks of these only.

    Raises: RpcError: ``bad_request``: a job belongs to another node. After a restart of the master, ownership follows
    the first registration, which may be wrong: the node named in the job's id takes precedence.
    """
    for state in message.jobs:
        job = known.get(state.job)
        if job is not None and job.origin != message.node != maker(state.job):
            raise bad_request(f"job {state.job!r} belongs to node {job.origin!r}", field="jobs")
    named = {"ready": [each.job for each in message.ready], "awaited": [each.job for each in message.awaited]}
    listed = {state.job for state in message.jobs}
    for field, jobs in named.items():
        for index, name in enumerate(jobs):
            if name not in listed:
                raise bad_request(f"job {name[:128]!r} is not among `jobs`", field=f"{field}[{index}].job")


def maker(job: str) -> str:
    """Return the node whose agent made an id: ids are the node's name, the agent run's name, and a number."""
    return job.rsplit("-", 2)[0]


def check_maker(node: Node, job: str) -> None:
    """Raises: RpcError: ``refused``: another node made the id of a job of which the master has no record."""
    if (made_by := maker(job)) != node.name:
        raise refused(f"job {job[:128]!r} belongs to node {made_by[:128]!r}", field="job")


def check_job(state: api.JobState) -> None:
    """Raises: RpcError: ``bad_request``: the time of submission is not finite."""
    if not math.isfinite(state.submitted_at):
        raise bad_request("not a time", field="submitted_at")


def check_at_end(ended: api.JobEnded) -> None:
    """Raises: RpcError: ``bad_request``: the time of submission or of the end is not finite."""
    at_end = ended.at_end
    for field in ("submitted_at", "ended_at") if at_end is not None else ():
        if not math.isfinite(getattr(at_end, field)):
            raise bad_request("not a time", field=f"at_end.{field}")


def check_tasks(ready: api.ReadyTasks) -> None:
    """Raises: RpcError: ``bad_request``: an estimate is negative or not finite."""
    for index, request in enumerate(ready.tasks):
        if not request.usage.is_valid():
            raise bad_request("expected non-negative numbers", field=f"tasks[{index}].usage")
