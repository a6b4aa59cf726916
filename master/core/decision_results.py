"""Results of decisions: the agent has carried them out, or refused them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from master.core.draining import Drain
from master.core.membership import Membership
from master.core.node import Node
from master.core.outbox import Outbox
from master.core.table import NodeTable
from master.core.task_lifecycle import TaskLifecycle
from penstock.wire import master_api as api


@dataclass(eq=False, repr=False)
class DecisionResults:
    """Applies the results of decisions."""

    _counts: Counter[str]
    _table: NodeTable
    _members: Membership
    _outbox: Outbox
    _tasks: TaskLifecycle
    _drain: Drain

    def answered(self, name: str, number: int, refusals: list[api.Refusal]) -> None:
        """Record that the agent carried out every decision of the request except the refused ones."""
        node = self._members.nodes.get(name)
        if node is None:
            return
        reasons = {refusal.index: refusal.reason for refusal in refusals}
        # none: sent on a connection that was lost since; the registration reported the true state
        for index, decision in enumerate(node.requests.answered(number)):
            reason = reasons.get(index)
            match decision:
                case api.Assign():
                    self._assigned(node, number, decision, reason)
                case api.Withdraw():
                    held = node.held.get((decision.job, decision.task))
                    # A framework's task is released at once, a command when it has ended; a refusal means that the node
                    # did not have it.
                    if held is not None and held.leaving and (reason is not None or not held.command):
                        self._tasks.rid_of(node, held)
                case api.Promote():
                    self._promoted(node, number, decision, reason)
                case api.Drain():
                    if reason is None:
                        self._drain.confirmed(node, number, decision)
                    else:
                        self._drain.refused(node, decision, reason)
                case api.TellEnded():
                    job = self._members.jobs.get(decision.job)
                    if job is not None:
                        self._tasks.heard(job, decision.task)

    def _assigned(self, node: Node, number: int, decision: api.Assign, reason: str | None) -> None:
        key = (decision.job, decision.request.task)
        held = node.held.get(key)
        if held is None or held.assigned_in != number:
            return  # the task has ended already: the node's report of that arrived first
        job, task = self._members.jobs.get(key[0]), self._members.task(key)
        if reason is None:
            held.step("accepted")
            self._table.touch(node)
            if job is not None and task is not None and task.node == node.name:
                self._tasks.tell_placed(job, task)
            return
        self._counts["refused"] += 1
        self._outbox.explain("refused", node=node.name, job=key[0], task=key[1], reason=reason, why=decision.why)
        if task is not None:
            task.refusals[node.name] = node.heartbeats
        self._tasks.rid_of(node, held)

    def _promoted(self, node: Node, number: int, decision: api.Promote, reason: str | None) -> None:
        held = node.held.get((decision.job, decision.task))
        if held is None or held.promoted_in != number:
            return
        if reason is None:
            held.promoted()
            self._table.touch(node)
            task = self._members.task(held.key)
            if task is not None and task.node == node.name:
                task.on_slack = False
            return
        held.promotion_refused(node.heartbeats)
        self._table.touch(node)
