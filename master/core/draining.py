"""Nodes that are drained: nothing new is placed on them, and what the master placed there ends, or is stopped and done
again elsewhere. Nothing is lost by it, and no loss is counted.

The node remembers over its restarts that it takes no work and says so when it registers. What an operator has said to
this master goes before that: a node that was away meanwhile hears of it when it is back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from master.core import events as e
from master.core import lifecycle
from master.core.records import Held, Node
from penstock.model import Ended, EndedBy
from penstock.wire import master_api as api
from penstock.wire.cluster_api import MOST_NAMED, Draining, NodeDrain, Remaining
from penstock.wire.errors import bad_request

if TYPE_CHECKING:
    from master.core.cluster import Cluster


def asked(cluster: Cluster, event: e.DrainAsked | e.UndrainAsked) -> None:
    """An operator wants it.

    Raises:
        RpcError: ``bad_request`` for ``nodes``: one is not known; then nothing has changed.
    """
    for node in known(cluster, event.nodes):
        if isinstance(event, e.UndrainAsked):
            _say(cluster, node, None, event.by)
            continue
        if node.draining is None:
            _say(cluster, node, Draining(event.by, event.at), event.by)
        if event.stop:
            _stop(cluster, node, f"node {node.name} is drained by {event.by}")


def known(cluster: Cluster, names: tuple[str, ...]) -> list[Node]:
    """Those nodes, each once.

    Raises:
        RpcError: ``bad_request`` for ``nodes``: one has never registered here. (One that is away for long, or since
            before this master began, is known as long as it is drained.)
    """
    nodes: dict[str, Node] = {}
    for name in names:
        node, draining = cluster.nodes.get(name), cluster.drains.draining(name)
        if draining is not None:  # it was here once
            node = node or Node(name, away_since=cluster.now, draining=draining)
        elif node is None or not node.version:
            here = ", ".join(sorted(each.name for each in cluster.nodes.values() if each.version)[:10])
            raise bad_request(f"no node {name!r} in this cluster", field="nodes", remedy=f"there are {here or 'none'}")
        nodes[name] = node
    return list(nodes.values())


def registered(cluster: Cluster, node: Node, said: Draining | None) -> None:
    """What a node remembers, and what it was to hear while it was away."""
    node.draining_in, node.own = 0, None
    known = cluster.drains.get(node.name)
    node.draining = said if known is None else known.draining
    if node.draining is not None:
        cluster.drains.say(node.name, node.draining)
    if node.draining != said:
        _propose(cluster, node)
    elif said is None:
        cluster.drains.confirmed(node.name)


def confirmed(cluster: Cluster, node: Node, number: int, decision: api.Drain) -> None:
    """The node has written it down; what it was told since goes before that."""
    if decision.draining is None and number >= node.draining_in:
        cluster.drains.confirmed(node.name)


def refused(cluster: Cluster, node: Node, decision: api.Drain, reason: str) -> None:
    """An agent that does not understand it: nothing is placed there all the same."""
    cluster.explain("drain refused", node=node.name, draining=decision.draining is not None, reason=reason)


def heard(node: Node, message: api.Heartbeat) -> None:
    """What else runs there, as far as the node knew of the drain when it said so."""
    if node.draining is not None and message.decided >= node.draining_in:
        node.own = message.own


def state(node: Node) -> str:
    """``draining``, ``drained``, ``connected``, ``away``, or ``expected`` (only others have spoken of it)."""
    if not node.connected:
        return "away" if node.version or node.draining is not None else "expected"
    if node.draining is None:
        return "connected"
    return "draining" if node.held or node.own is None or node.own else "drained"


def told(cluster: Cluster, node: Node) -> NodeDrain:
    """How far a node is, and what still runs there."""
    own = node.own or []
    left = [*_held(cluster, node), *own[: max(0, MOST_NAMED - len(node.held))]]
    return NodeDrain(
        node=node.name,
        state=state(node),
        draining=node.draining,
        remaining=left,
        count=len(node.held) + len(own),
        jobs=[job.job for job in cluster.jobs.values() if job.origin == node.name][:MOST_NAMED],
    )


def note(cluster: Cluster) -> str:
    """What is to be said beside why something waits: which nodes take no work; empty where all do."""
    names = [name for name in cluster.drains if name in cluster.nodes]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f" (drained: {', '.join(names[:3])}{more})" if names else ""


# ---------------------------------------------------------------- inside


def _say(cluster: Cluster, node: Node, draining: Draining | None, by: str) -> None:
    """From now on; the node is told at once, or when it is back."""
    if node.draining == draining:
        return
    cluster.drains.say(node.name, draining)
    node.draining, node.own = draining, None
    if node.name in cluster.nodes:
        _propose(cluster, node)
        cluster.table.refresh(node)
    cluster.changed = cluster.room_changed = True
    cluster.executors.news = True
    what = "node takes work again" if draining is None else "node is drained"
    cluster.explain(what, node=node.name, by=by, tasks=len(node.held))


def _propose(cluster: Cluster, node: Node) -> None:
    by = "" if node.draining is None else f"{node.draining.by} drains it"
    node.draining_in = cluster.propose(node.name, api.Drain(draining=node.draining, why=by))


def _stop(cluster: Cluster, node: Node, why: str) -> None:
    """What the master placed there: commands wait for a place again, a framework hears that its tasks are lost, as if
    the node were. A task that only the node has told us of stays until its origin is back."""
    for held in list(node.held.values()):
        job, task = cluster.jobs.get(held.job), cluster.task(held.key)
        if held.leaving_in is not None or job is None or task is None or task.request is None:
            continue
        lifecycle.withdraw(cluster, node, held, why)
        if held.command:
            lifecycle.requeue(cluster, job, task)
        else:
            lifecycle.end(cluster, job, task, Ended(by=EndedBy.LOST, reason=why))
        cluster.counts["stopped_for_drains"] += 1


def _held(cluster: Cluster, node: Node) -> Iterator[Remaining]:
    for held in list(node.held.values())[:MOST_NAMED]:
        job = cluster.jobs.get(held.job)
        name, user = (job.name, job.user) if job is not None else ("", "")
        yield Remaining(_kind(held), f"{held.job}/{held.task}", name, user)


def _kind(held: Held) -> str:
    if not held.command:
        return "task"
    return "executor" if held.executor else "command"
