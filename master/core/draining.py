"""Drained nodes: the master places nothing new on them, and its tasks there end, or are stopped and redone elsewhere.
No work is lost, and no loss is counted.

A node stores its drain across restarts and reports it at registration. An operator's request to this master takes
precedence: a node that was away receives the request when it is back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from master.core import events as e
from master.core.records import Held, Node
from penstock.model import Ended, EndedBy
from penstock.wire import master_api as api
from penstock.wire.cluster_api import MOST_NAMED, Draining, NodeDrain, Remaining
from penstock.wire.errors import bad_request

if TYPE_CHECKING:
    from master.core.cluster import Cluster


def asked(cluster: Cluster, event: e.DrainAsked | e.UndrainAsked) -> None:
    """Handle an operator's request.

    Raises: RpcError: ``bad_request`` for ``nodes``: a node is unknown; nothing has changed.
    """
    for node in known(cluster, event.nodes):
        if isinstance(event, e.UndrainAsked):
            _set_drain(cluster, node, None, event.by)
            continue
        if node.draining is None:
            _set_drain(cluster, node, Draining(event.by, event.at), event.by)
        if event.stop:
            _stop(cluster, node, f"node {node.name} is drained by {event.by}")


def known(cluster: Cluster, names: tuple[str, ...]) -> list[Node]:
    """Return the named nodes, each once.

    Raises: RpcError: ``bad_request`` for ``nodes``: a node has never registered here. (A node that has been away for
    long, or since before this master started, is known while it is drained.)
    """
    nodes: dict[str, Node] = {}
    for name in names:
        node, draining = cluster.members.nodes.get(name), cluster.drains.draining(name)
        if draining is not None:  # it has registered before
            node = node or Node(name, away_since=cluster.clock.now, draining=draining)
        elif node is None or not node.version:
            here = ", ".join(sorted(each.name for each in cluster.members.nodes.values() if each.version)[:10])
            raise bad_request(f"no node {name!r} in this cluster", field="nodes", remedy=f"there are {here or 'none'}")
        nodes[name] = node
    return list(nodes.values())


def registered(cluster: Cluster, node: Node, said: Draining | None) -> None:
    """Compare the drain a node reports at registration with the operator's latest request, and send it where they
    differ.
    """
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
    """Handle the node's confirmation that it stored the request, unless a later request followed."""
    if decision.draining is None and number >= node.draining_in:
        cluster.drains.confirmed(node.name)


def refused(cluster: Cluster, node: Node, decision: api.Drain, reason: str) -> None:
    """Log that an agent does not support drains; the master places nothing there all the same."""
    cluster.outbox.explain("drain refused", node=node.name, draining=decision.draining is not None, reason=reason)


def heard(node: Node, message: api.Heartbeat) -> None:
    """Take the node's other running work from a heartbeat sent after the node knew of the drain."""
    if node.draining is not None and message.decided >= node.draining_in:
        node.own = message.own


def state(node: Node) -> str:
    """Return ``draining``, ``drained``, ``connected``, ``away``, or ``expected`` (reported only by others)."""
    if not node.connected:
        return "away" if node.version or node.draining is not None else "expected"
    if node.draining is None:
        return "connected"
    return "draining" if node.held or node.own is None or node.own else "drained"


def told(cluster: Cluster, node: Node) -> NodeDrain:
    """Return a node's drain: its state, and the work that still runs there."""
    own = node.own or []
    left = [*_held(cluster, node), *own[: max(0, MOST_NAMED - len(node.held))]]
    return NodeDrain(
        node=node.name,
        state=state(node),
        draining=node.draining,
        remaining=left,
        count=len(node.held) + len(own),
        jobs=[job.job for job in cluster.members.jobs.values() if job.origin == node.name][:MOST_NAMED],
    )


# ---------------------------------------------------------------- inside


def _set_drain(cluster: Cluster, node: Node, draining: Draining | None, by: str) -> None:
    """Set or clear a node's drain; the node is told at once, or when it is back."""
    if node.draining == draining:
        return
    cluster.drains.say(node.name, draining)
    node.draining, node.own = draining, None
    if node.name in cluster.members.nodes:
        _propose(cluster, node)
        cluster.table.refresh(node)
    cluster.dues.place_and_admit()
    cluster.executors.news = True
    what = "node takes work again" if draining is None else "node is drained"
    cluster.outbox.explain(what, node=node.name, by=by, tasks=len(node.held))


def _propose(cluster: Cluster, node: Node) -> None:
    by = "" if node.draining is None else f"{node.draining.by} drains it"
    node.draining_in = cluster.outbox.propose(node.name, api.Drain(draining=node.draining, why=by))


def _stop(cluster: Cluster, node: Node, why: str) -> None:
    """Stop the master's tasks on a node: commands wait for a place again, and a framework is told that its tasks are
    lost. A task known only from the node itself stays until its origin is back.
    """
    for held in list(node.held.values()):
        job, task = cluster.members.jobs.get(held.job), cluster.members.task(held.key)
        if held.leaving_in is not None or job is None or task is None or task.request is None:
            continue
        cluster.tasks.withdraw(node, held, why)
        if held.command:
            cluster.tasks.requeue(job, task)
        else:
            cluster.tasks.end(job, task, Ended(by=EndedBy.LOST, reason=why))
        cluster.counts["stopped_for_drains"] += 1


def _held(cluster: Cluster, node: Node) -> Iterator[Remaining]:
    for held in list(node.held.values())[:MOST_NAMED]:
        job = cluster.members.jobs.get(held.job)
        name, user = (job.name, job.user) if job is not None else ("", "")
        yield Remaining(_kind(held), f"{held.job}/{held.task}", name, user)


def _kind(held: Held) -> str:
    if not held.command:
        return "task"
    return "executor" if held.executor else "command"
