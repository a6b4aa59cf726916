"""Opportunistic work on the node: resources in use, work that may start on the rest, and work that waits (UBIS).

Slack is T_alloc × capacity minus the resources in use (§IV.A). The queue is the paper's future work (§VII): "queuing
opportunistic containers allows the nodes to execute tasks as soon as they finish one".
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from agent.core.instructions import Instruction
from agent.core.ledger import Ledger
from penstock.model import KINDS, KindAmounts, ResourceKind

if TYPE_CHECKING:
    from agent.core.node import Node


def of_frameworks(node: Node) -> KindAmounts:
    """Return the slots per kind that frameworks hold. Commands' use is measured, so their slots do not count."""
    commands = Counter(record.kind for record in node.containers.live.values())
    return KindAmounts(*(float(node.queues.running(kind) - commands[kind]) for kind in KINDS))


def in_use(node: Node, ledger: Ledger) -> KindAmounts:
    """Return the cores in use, and the fractions of the disks and of the link, from 0 to above 1.

    Slots that frameworks hold count as used even if no use is measured: their processes need not be in containers. A
    command that has not been sampled yet counts as a whole slot of its kind, in addition to its cores.
    """
    frameworks, capacity = of_frameworks(node), node.settings.capacity
    host = node.snapshot.host if node.snapshot is not None else None
    busy = {ResourceKind.DISK: host and host.disk_busy, ResourceKind.NETWORK: host and host.network_busy}
    unseen = _unseen(node)
    shares = [
        max(busy[kind] or 0.0, frameworks.of(kind) / capacity.slots(kind)) + unseen[kind] / capacity.slots(kind)
        for kind in busy
    ]
    return KindAmounts(max(ledger.used_cores + unseen[ResourceKind.CPU], frameworks.cpu), *shares)


def _unseen(node: Node) -> Counter[ResourceKind]:
    """Count the placed commands started since the last sample, by kind; the ledger counts those with cores."""
    seen = node.snapshot.containers if node.snapshot is not None else {}
    return Counter(
        held.request.command_kind
        for held in node.held
        if held.container
        and held.container not in seen
        and not (held.request.command_kind is ResourceKind.CPU and held.cores)
    )


def claimed(node: Node) -> tuple[KindAmounts, int]:
    """Return the resources reserved for waiting commands, in cores, fractions and bytes."""
    if not node.held.waiting:
        return KindAmounts(), 0
    waiting = [node.held.by_key[key] for key in node.held.waiting]
    cores = sum(held.cores or float(held.request.command_kind is ResourceKind.CPU) for held in waiting)
    kinds = Counter(held.request.command_kind for held in waiting)
    disk, network = (
        kinds[kind] / node.settings.capacity.slots(kind) for kind in (ResourceKind.DISK, ResourceKind.NETWORK)
    )
    return KindAmounts(cores, disk, network), sum(held.request.memory_bytes for held in waiting)


def refuse(node: Node, held_cores: float, memory_bytes: int) -> str:
    """Return why a command does not fit into the present slack, or ""."""
    ledger, t_alloc = node.ledger(), node.threshold.t_alloc
    used = in_use(node, ledger)
    full = used.cpu >= t_alloc * node.settings.capacity.cores or max(used.disk, used.network) >= t_alloc
    why = ledger.refuse_opportunistic(held_cores, memory_bytes, t_alloc)
    return why or ("T_alloc is used up for cpu, disk or network" if full else "")


def queue_free(node: Node) -> int:
    """Return how many more commands may wait."""
    return max(0, node.settings.opportunistic_queue - len(node.held.waiting)) if node.threshold.t_alloc else 0


def start_waiting(node: Node, now: float) -> list[Instruction]:
    """Start the waiting commands that fit now, in order."""
    instructions: list[Instruction] = []
    for key in list(node.held.waiting):
        held = node.held.by_key[key]
        if refuse(node, held.cores, held.request.memory_bytes):
            break
        del node.held.waiting[key]
        instructions += node.granting.start(held, now)
    return instructions


def sampled(node: Node, now: float) -> list[Instruction]:
    """Start the commands that fit now; hand back to the master those that have waited too long."""
    instructions = start_waiting(node, now)
    wait_s = node.settings.opportunistic_wait_s
    for key, since in list(node.held.waiting.items()):
        if now - since >= wait_s:
            reason = f"it has waited {wait_s:g} s for slack"
            instructions += node.lifecycle.hand_back(node.held.by_key[key], reason, now)
    return instructions
