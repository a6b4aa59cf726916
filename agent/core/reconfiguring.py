"""Change settings while the node runs: thresholds, limits, waiting times. Grants remain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core import events as e
from agent.core import preempting
from agent.core.instructions import Instruction

if TYPE_CHECKING:
    from agent.core.node import Node


def reconfigured(node: Node, event: e.Reconfigured, now: float) -> list[Instruction]:
    """Give every part that keeps settings its new ones.

    Running opportunistic work continues regardless of the new T_alloc: T_preempt alone decides when it gives way.
    """
    before = node.settings
    node.settings = after = before.changed(event.settings)
    node.queues.reconfigure(after.disk_small_bytes, after.lease_s, after.lease_kept_s, after.job_wait_max_s)
    node.granting.reconfigure(after)
    forgotten = node.containers.keep(after.keep_ended)
    node.elasticity.reconfigure(after)
    if (before.t_alloc, before.t_alloc_tuning) != (after.t_alloc, after.t_alloc_tuning):
        node.threshold.reconfigure(after.t_alloc, after.t_alloc_tuning)
        node.t_alloc_moves = True
    begun = node.preemption.reconfigure(after.preemption)
    return forgotten + preempting.carry_out(node, begun, event.at, now, begun=True)
