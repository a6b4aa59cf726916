"""A drained node accepts no work from the master. Placed work that can run elsewhere is returned at once: opportunistic
commands are stopped as in preemption, and commands that wait for a slot or for slack are handed back. The rest runs to
its end. Work that this host's users and frameworks started through the agent continues and is reported to the master.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from agent.core import tasks
from agent.core.instructions import Explain, Instruction, Record
from penstock.model import EndedBy
from penstock.wire.cluster_api import MOST_NAMED, Draining, Remaining

if TYPE_CHECKING:
    from agent.core.node import Node

#: The journal's room, and its only key.
ROOM = "node"
_KEY = "draining"
REFUSAL = "this node is drained: it takes no work until `penstock undrain`"


def told(node: Node, draining: Draining | None, now: float) -> list[Instruction]:
    """Set or clear the drain. It is journaled first, so that the next agent takes no work either."""
    node.draining = draining
    instructions: list[Instruction] = [Record(ROOM, _KEY, draining)]
    if draining is None:
        return [*instructions, Explain("node takes work again", {})]
    return [*instructions, Explain("node is drained", {"by": draining.by}), *give_back(node, now)]


def give_back(node: Node, now: float) -> list[Instruction]:
    """Hand back the master's commands that have not started, and stop those that may be stopped at any time."""
    if node.draining is None:
        return []
    reason = f"{node.settings.node} is drained by {node.draining.by}"
    instructions: list[Instruction] = []
    for held in [each for each in node.held if each.request.command is not None]:
        if held.opportunistic and held.container:
            instructions += node.containers.stop(held.container, EndedBy.PREEMPTED, reason)
        elif not held.container:
            instructions += node.lifecycle.hand_back(held, reason, now)
    return instructions


def own_work(node: Node) -> list[Remaining]:
    """Return other work while drained: containers of this host's users, slots held by frameworks."""
    return [] if node.draining is None else list(islice(_own(node), MOST_NAMED))


def status(node: Node) -> dict[str, Any] | None:
    """Return the drain for the status document: by whom, since when, and the remaining work; None if not drained."""
    if node.draining is None:
        return None
    left = [*_placed(node), *own_work(node)]
    return {
        "state": "draining" if left else "drained",
        **msgspec.to_builtins(node.draining),
        "count": len(left),
        "remaining": [msgspec.to_builtins(each) for each in left[:MOST_NAMED]],
    }


def _own(node: Node) -> Iterator[Remaining]:
    for record in node.containers.live.values():
        if (record.job, record.task) not in node.held.by_key:
            yield Remaining("container", record.container, record.spec.name or record.spec.argv[0], record.user)
    commands = Counter(each.job for each in node.held if each.container)
    for name, job in node.jobs.items():
        held = node.queues.job_counts(name)["running"] - commands[name]
        if held > 0:
            yield Remaining("slots", name, f"{job.record.name} ({held})", job.record.user)


def _placed(node: Node) -> Iterator[Remaining]:
    for held in node.held:
        kind = "task" if held.request.command is None else "command" if held.request.executor is None else "executor"
        yield Remaining(kind, tasks.journal_key(held.job, held.task), held.job, held.user)
