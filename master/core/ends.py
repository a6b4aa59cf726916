"""What agents say about how tasks ended, or are to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from master.core import backing_off, lifecycle, standing
from master.core.records import Node
from penstock.model import Ended, EndedBy
from penstock.wire import master_api as api

if TYPE_CHECKING:
    from master.core.cluster import Cluster


def tasks_done(cluster: Cluster, node: Node, message: api.TasksDone, now: float) -> None:
    """A framework finished tasks that it executes itself. It may say so at any node that takes part in its job; the
    holder must let go, unless it is the one that says so: it let go before.

    Raises:
        RpcError: ``refused``: this node does not.
    """
    for name in message.tasks:
        _let_go(cluster, node, (message.job, name))
    job = cluster.jobs.get(message.job)
    if job is None:
        return
    standing.check_part(node, job)
    for name in message.tasks:
        task = job.tasks.get(name)
        if task is None:
            continue
        holder, held = cluster.nodes.get(task.node), lifecycle.held_of(cluster, task)
        if holder is node and held is not None and not held.command:
            lifecycle.drop(cluster, node, held)  # that agent let go before it told us
            backing_off.done(node, held)
        elif holder is not None and held is not None:
            lifecycle.withdraw(cluster, holder, held, "its framework says that it is done")
        if node.name == job.origin:
            lifecycle.forget(cluster, job, task)
            cluster.counts["ended_exit"] += 1
            cluster.changed = True
        else:
            task.node = task.node or node.name  # it was executed before we knew, or knew again, that it was placed
            lifecycle.end(
                cluster, job, task, Ended(by=EndedBy.EXIT, exit_status=0, reason=f"done, said at {node.name}")
            )


def _let_go(cluster: Cluster, node: Node, key: tuple[str, str]) -> None:
    """A node no longer holds a framework's task that it was told to give up: it has said first that it is done.

    Until its answer to that the books would take what others got there meanwhile for this task's memory. What the node
    has not accepted yet is a later copy than the one it speaks of.
    """
    held = node.held.get(key)
    if held is not None and held.leaving_in is not None and held.accepted and not held.command:
        lifecycle.drop(cluster, node, held)


def tasks_cancelled(cluster: Cluster, node: Node, message: api.TasksCancelled, now: float) -> None:
    """The origin no longer wants them. A placed command ends when its node says how; everything else ends now.

    Raises:
        RpcError: ``refused``: this is not the origin.
    """
    if message.job not in cluster.jobs:
        return
    job = standing.own(cluster, node, message.job)
    for name in message.tasks:
        task = job.tasks.get(name)
        if task is None or task.unwanted:
            continue
        holder, held = cluster.nodes.get(task.node), lifecycle.held_of(cluster, task)
        if holder is not None and held is not None:
            lifecycle.withdraw(cluster, holder, held, "cancelled")
            if held.command:
                task.unwanted = True
                continue
        lifecycle.end(cluster, job, task, Ended(by=EndedBy.CANCELLED, reason="cancelled"))


def command_ended(cluster: Cluster, node: Node, message: api.CommandEnded, now: float) -> None:
    """A command ended on its node. A copy that was withdrawn because it is elsewhere by now ends silently.

    A connection keeps its order: what ends before its assignment was answered is an earlier copy, whose end was said
    only now. That end counts as well, unless that copy was stopped: then the present one goes on. After
    a restart of ours only its origin knows what it is: where that has yet to register, the end is kept until then.
    """
    key = (message.job, message.task)
    job, task, held = cluster.jobs.get(message.job), cluster.task(key), node.held.get(key)
    stopped = message.ended.by in (EndedBy.CANCELLED, EndedBy.PREEMPTED)
    cluster.changed = True
    if task is None and not stopped and _origin_is_to_come(cluster, message):
        job = job or cluster.new_job(message.job, message.origin, now)
        lifecycle.keep_end(job, message.task, node.name, message.ended)
    if held is not None and held.accepted:
        lifecycle.drop(cluster, node, held)
        if message.ended.by is EndedBy.EXIT:
            backing_off.done(node, held)
        if job is not None and task is not None and task.node == node.name:
            if message.ended.by is not EndedBy.PREEMPTED:
                lifecycle.end(cluster, job, task, message.ended)
            elif task.request is not None:  # it did nothing wrong: back to its job's queue (UBIS §IV.C)
                backing_off.preempted(cluster, node, task, message.ended, now)
                lifecycle.requeue(cluster, job, task)
            else:  # what it is only its origin knows, which says so when it registers
                lifecycle.forget(cluster, job, task)
        return
    was_here = task is not None and (task.node or task.was_on) == node.name
    if job is not None and task is not None and was_here and not stopped:
        if held is not None:
            lifecycle.withdraw(cluster, node, held, "an earlier copy of it has ended")
        task.node = node.name
        lifecycle.end(cluster, job, task, message.ended)


def _origin_is_to_come(cluster: Cluster, message: api.CommandEnded) -> bool:
    """Whether it may still be said what job that is: not of one that is over, nor once its origin has said it."""
    job, past = cluster.jobs.get(message.job), cluster.past.get(message.job)
    origin = cluster.nodes.get(job.origin if job is not None else message.origin)
    if (past is not None and past.cancelled_by) or (origin is not None and origin.connected):
        return False
    return job is None or not job.described
