"""Bounds on usage one user may queue, hold and have promised on this node, so that no user can block the others.

Operators have no limits. Work placed by the master is governed by the master (shares, docs/order.md): it counts
here, but is never refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.core.ledger import CORES_EPSILON
from agent.core.records import ContainerRecord, Job
from agent.core.session import Session
from agent.core.settings import UserQuotas
from agent.queues import MonotaskQueues
from penstock.model import ContainerSpec, Limits
from penstock.model.units import counted, format_bytes
from penstock.wire.errors import RpcError, refused


def check_job(opened: Session, quotas: UserQuotas, jobs: Iterable[Job]) -> None:
    """Check that the user may register one more job.

    Raises:
        RpcError: ``refused``: the user has too many.
    """
    most = quotas.jobs
    if not most or opened.operator:
        return
    has = sum(job.record.here and job.record.user == opened.user for job in jobs)
    if has >= most:
        raise _over(opened.user, f"{counted(has, 'job')} registered", "user_max_jobs", f"{most}", "end one first")


def check_queue(
    opened: Session, quotas: UserQuotas, jobs: Mapping[str, Job], queues: MonotaskQueues, monotasks: int
) -> None:
    """Check that the user may queue this many more monotasks. The node's total comes first: it is cheap on the hot
    path.

    Raises:
        RpcError: ``refused``: too many of the user's would be queued.
    """
    most = quotas.queued
    if not most or queues.queued() + monotasks <= most or opened.operator:
        return
    own = [name for name, job in jobs.items() if job.record.user == opened.user]
    has = sum(queues.job_counts(name)["queued"] for name in own)
    if has + monotasks > most:
        usage = f"{counted(has, 'monotask')} queued, and {monotasks} more asked"
        raise _over(opened.user, usage, "user_max_queued", f"{most}", "submit fewer at a time")


def check_tasks(opened: Session, quotas: UserQuotas, jobs: Iterable[Job], tasks: int) -> None:
    """Check that the user may ask for places for this many more tasks; 0: all of a request were asked for before.

    Raises:
        RpcError: ``refused``: too many of the user's would wait or run.
    """
    most = quotas.tasks
    if not most or not tasks or opened.operator:
        return
    own = [job for job in jobs if job.record.user == opened.user]
    if sum(len(job.tasks) for job in own) + tasks <= most:  # counts ended tasks too: an upper bound that is cheap
        return
    has = sum(task.ended is None for job in own for task in job.tasks.values())
    if has + tasks > most:
        usage = f"{counted(has, 'task')} that {'waits or runs' if has == 1 else 'wait or run'}, and {tasks} more asked"
        raise _over(opened.user, usage, "user_max_tasks", f"{most}", "place fewer at a time")


def check_pids(opened: Session, quotas: UserQuotas, limits: Limits) -> None:
    """Check the processes and threads of one container.

    Raises:
        RpcError: ``refused``: a user may not allow so many.
    """
    most = quotas.pids
    if most and not opened.operator and (limits.pids_max or 0) > most:
        raise _over(opened.user, f"asked for pids_max {limits.pids_max}", "user_max_pids", f"{most}", "ask for less")


def check_container(
    opened: Session, quotas: UserQuotas, containers: Iterable[ContainerRecord], spec: ContainerSpec
) -> None:
    """Check that the user may have one more container.

    Raises:
        RpcError: ``refused``: the user has too many, or too much would be promised to the user.
    """
    if opened.operator:
        return
    check_pids(opened, quotas, spec.limits)
    own = [record for record in containers if record.user == opened.user]
    if quotas.containers and len(own) >= quotas.containers:
        usage = counted(len(own), "container")
        raise _over(opened.user, usage, "user_max_containers", f"{quotas.containers}", "wait until one ends")
    if spec.opportunistic:
        return  # it has no promise
    remedy = "ask for less, wait until something ends, or run it opportunistic"
    promised = [record.spec for record in own if not record.opportunistic]
    cores = sum(each.cpu_cores for each in promised)
    if quotas.cores and cores + spec.cpu_cores > quotas.cores + CORES_EPSILON:
        usage = f"{counted(cores, 'core')} promised, and {spec.cpu_cores:g} more asked"
        raise _over(opened.user, usage, "user_max_cores", f"{quotas.cores:g}", remedy)
    held = sum(each.memory_bytes for each in promised)
    if quotas.memory_bytes and held + spec.memory_bytes > quotas.memory_bytes:
        usage = f"{format_bytes(held)} promised, and {format_bytes(spec.memory_bytes)} more asked"
        raise _over(opened.user, usage, "user_max_memory_bytes", format_bytes(quotas.memory_bytes), remedy)


def _over(user: str, has: str, key: str, most: str, remedy: str) -> RpcError:
    return refused(f"{user} has {has}; {key} is {most}", remedy=f"{remedy}, or ask an operator to raise {key}")
