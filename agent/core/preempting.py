"""Turn the decisions of preemption into instructions, and record their subject, reason, numbers and rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core import events as e
from agent.core import slack
from agent.core.instructions import Explain, Instruction, Reclaim
from agent.core.preemption import Act, Action, View
from agent.core.records import Preempted
from agent.core.snapshot import Snapshot
from penstock.model import EndedBy

if TYPE_CHECKING:
    from agent.core.node import Node

_DONE = {
    Act.PAUSE: "paused",
    Act.RESUME: "resumed",
    Act.RECLAIM: "reclaimed",
    Act.WARN: "warned",
    Act.END: "preempted",
}


def sampled(node: Node, event: e.Sampled, now: float) -> list[Instruction]:
    """Apply a sample to preemption and to the tuning of T_alloc."""
    instructions = carry_out(node, node.preemption.sampled(_view(node, event.snapshot), now), event.at, now)
    if node.settings.t_alloc_tuning is not None:
        _tune(node, now)
    return instructions


def _tune(node: Node, now: float) -> None:
    """Tune T_alloc by the utilization and the preemptions so far."""
    ledger, capacity = node.ledger(), node.settings.capacity
    acts = sum(count for (done, _), count in node.acts.items() if done in (_DONE[Act.PAUSE], _DONE[Act.END]))
    node.threshold.sampled(
        max(ledger.used_cores / capacity.cores, ledger.used_memory_bytes / capacity.memory_bytes), acts, now
    )


def memory_looked(node: Node, event: e.MemoryLooked, now: float) -> list[Instruction]:
    """Apply a memory check between two samples."""
    node.snapshot = event.snapshot
    return carry_out(node, node.preemption.looked(_view(node, event.snapshot), event.pressed, now), event.at, now)


def reclaimed(node: Node, event: e.Reclaimed, now: float) -> list[Instruction]:
    """Record the end of a reclaim; the next check decides whether it was enough."""
    node.preemption.reclaimed(event.container)
    return []


def _view(node: Node, snapshot: Snapshot) -> View:
    return View.of(snapshot, list(node.containers.live.values()), node.ledger(), slack.of_frameworks(node))


def carry_out(node: Node, actions: list[Action], at: float, now: float, *, begun: bool = False) -> list[Instruction]:
    """Carry out actions and log each. A dry run only logs, except for actions ``begun`` before it."""
    instructions: list[Instruction] = []
    for action in actions:
        done = _DONE[action.act]
        dry_run = node.settings.preemption.dry_run and not begun
        if not dry_run:
            instructions += _instructions(node, action)
            if action.act is Act.END:
                node.reaction.decided(action.container, now)
        if action.act is not Act.RESUME:
            record = Preempted(at, action.container, action.resource, "dry run" if dry_run else done, action.reason)
            node.preempted.append(record)
            del node.preempted[: max(0, len(node.preempted) - node.settings.keep_ended)]
        node.acts[done, action.resource] += not dry_run
        facts: dict[str, object] = {
            "container": action.container,
            "resource": action.resource,
            "why": action.reason,
        }
        if action.candidates:
            facts["candidates"] = action.candidates
        instructions.append(Explain(f"would have {done}" if dry_run else done, facts))
    return instructions


def _instructions(node: Node, action: Action) -> list[Instruction]:
    container = action.container
    record = node.containers.live.get(container)
    if record is None:
        return []
    match action.act:
        case Act.PAUSE:
            return node.containers.pause(container)
        case Act.RESUME:
            return node.containers.resume(container)
        case Act.RECLAIM:
            return [Reclaim(container, action.size_bytes)]
        case Act.WARN:
            assert record.spec.notice is not None
            return node.containers.warn(container, record.spec.notice.signal)
        case Act.END:
            return node.containers.stop(container, EndedBy.PREEMPTED, action.reason)
