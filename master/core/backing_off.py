"""Back-off of preempted opportunistic work: the nodes a task avoids, and the number of such tasks a node may hold."""

from __future__ import annotations

import numpy as np

from master.core.job import Task
from master.core.node import Held, Node
from master.core.settings import MasterSettings
from master.core.table import NodeTable, Rows
from master.opportunistic import SlackLimit, pause_after
from master.placement.workers import Floats
from penstock.model import Ended


def preempted(settings: MasterSettings, node: Node, task: Task, ended: Ended, now: float) -> None:
    """Back off after a node ended a command for its resources; the node's held tasks no longer include the command.

    A command without an exit status did not run: the node handed it back, which says nothing against the node. The same
    holds for a drained node, which ends all its opportunistic work.
    """
    first_s, most_s = settings.preemption_backoff_s, settings.preemption_backoff_max_s
    if not first_s or ended.exit_status is None or node.draining is not None:
        return
    task.pauses[node.name] = pause_after(task.pauses.get(node.name), now, first_s, most_s)
    left = sum(not held.regular and not held.leaving for held in node.held.values())
    node.slack_limit = SlackLimit.after_preemption(left, now, most_s)


def done(node: Node, held: Held) -> None:
    """Raise the node's limit: an opportunistic task ended there without a preemption."""
    if node.slack_limit is not None and not held.regular:
        node.slack_limit.most += 1


def shunned(task: Task, now: float) -> list[str]:
    """Return the nodes on whose slack the task is not to be placed at ``now``."""
    return [name for name, pause in task.pauses.items() if not pause.over(now)]


def room(table: NodeTable, rows: Rows, now: float) -> Floats | None:
    """Return how many more opportunistic tasks each node of ``rows`` may hold (n); None where no node has a limit."""
    limits = [table.nodes[row].slack_limit for row in rows.tolist()]
    if not any(limits):
        return None
    most: Floats = np.array([np.inf if limit is None or not limit.holds(now) else limit.most for limit in limits])
    left: Floats = most - table.opportunistic[rows]
    return left
