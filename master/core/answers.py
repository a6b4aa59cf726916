"""Results of decisions: the agent has carried them out, or refused them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from master.core import draining
from master.core.records import Node
from penstock.wire import master_api as api

if TYPE_CHECKING:
    from master.core.cluster import Cluster


def answered(cluster: Cluster, name: str, number: int, refusals: list[api.Refusal]) -> None:
    """Record that the agent carried out every decision of the request except the refused ones."""
    node = cluster.members.nodes.get(name)
    decisions = node.unanswered.pop(number, None) if node is not None else None
    if node is None or decisions is None:
        return  # sent on a connection that was lost since: the registration reported the true state
    reasons = {refusal.index: refusal.reason for refusal in refusals}
    for index, decision in enumerate(decisions):
        reason = reasons.get(index)
        match decision:
            case api.Assign():
                _assigned(cluster, node, number, decision, reason)
            case api.Withdraw():
                held = node.held.get((decision.job, decision.task))
                # A framework's task is released at once, a command when it has ended; a refusal means that the node did
                # not have it.
                if held is not None and held.leaving_in is not None and (reason is not None or not held.command):
                    cluster.tasks.rid_of(node, held)
            case api.Promote():
                _promoted(cluster, node, number, decision, reason)
            case api.Drain():
                if reason is None:
                    draining.confirmed(cluster, node, number, decision)
                else:
                    draining.refused(cluster, node, decision, reason)
            case api.TellEnded():
                job = cluster.members.jobs.get(decision.job)
                if job is not None:
                    cluster.tasks.heard(job, decision.task)


def _assigned(cluster: Cluster, node: Node, number: int, decision: api.Assign, reason: str | None) -> None:
    key = (decision.job, decision.request.task)
    held = node.held.get(key)
    if held is None or held.assigned_in != number:
        return  # the task has ended already: the node's report of that arrived first
    job, task = cluster.members.jobs.get(key[0]), cluster.members.task(key)
    if reason is None:
        held.accepted = True
        cluster.table.touch(node)
        if job is not None and task is not None and task.node == node.name:
            cluster.tasks.tell_placed(job, task)
        return
    cluster.counts["refused"] += 1
    cluster.outbox.explain("refused", node=node.name, job=key[0], task=key[1], reason=reason, why=decision.why)
    if task is not None:
        task.refusals[node.name] = node.heartbeats
    cluster.tasks.rid_of(node, held)


def _promoted(cluster: Cluster, node: Node, number: int, decision: api.Promote, reason: str | None) -> None:
    held = node.held.get((decision.job, decision.task))
    if held is None or held.promoted_in != number:
        return
    if reason is None:
        held.opportunistic = False
        cluster.table.touch(node)
        task = cluster.members.task(held.key)
        if task is not None and task.node == node.name:
            task.on_slack = False
        return
    held.promoted_in = None
    cluster.table.touch(node)
    held.promotion_refused_at = node.heartbeats
