"""Drained nodes: the master places nothing new on them, and its tasks there end, or are stopped and redone elsewhere.
No work is lost, and no loss is counted.

A node stores its drain across restarts and reports it at registration. An operator's request to this master takes
precedence: a node that was away receives the request when it is back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from master.core import events as e
from master.core.drains import Drains
from master.core.dues import Clock, Dues
from master.core.executors import Executors
from master.core.membership import Membership
from master.core.node import Held, Node
from master.core.outbox import Outbox
from master.core.table import NodeTable
from master.core.task_lifecycle import TaskLifecycle
from penstock.model import Ended, EndedBy
from penstock.wire import master_api as api
from penstock.wire.cluster_api import MOST_NAMED, Draining, NodeDrain, Remaining
from penstock.wire.errors import bad_request

NodeState = Literal["connected", "draining", "drained", "away", "expected"]


@dataclass(eq=False, repr=False)
class Drain:
    """Sets, clears and repeats the drains of nodes."""

    _clock: Clock
    _dues: Dues
    _drains: Drains
    _table: NodeTable
    _members: Membership
    _outbox: Outbox
    _executors: Executors
    _tasks: TaskLifecycle

    def requested(self, event: e.DrainRequested | e.UndrainRequested) -> None:
        """Handle an operator's request.

        Raises: RpcError: ``bad_request`` for ``nodes``: a node is unknown; nothing has changed.
        """
        for node in self.known(event.nodes):
            if isinstance(event, e.UndrainRequested):
                self._set_drain(node, None, event.by)
                continue
            if node.draining is None:
                self._set_drain(node, Draining(event.by, event.at), event.by)
            if event.stop:
                self._stop(node, f"node {node.name} is drained by {event.by}")

    def known(self, names: tuple[str, ...]) -> list[Node]:
        """Return the named nodes, each once.

        Raises: RpcError: ``bad_request`` for ``nodes``: a node has never registered here. (A node that has been away
        for long, or since before this master started, is known while it is drained.)
        """
        nodes: dict[str, Node] = {}
        for name in names:
            node, draining = self._members.nodes.get(name), self._drains.draining(name)
            if draining is not None:  # it has registered before
                node = node or Node(name, away_since=self._clock.now, draining=draining)
            elif node is None or not node.version:
                here = ", ".join(sorted(each.name for each in self._members.nodes.values() if each.version)[:10])
                raise bad_request(
                    f"no node {name!r} in this cluster", field="nodes", remedy=f"its nodes: {here or 'none'}"
                )
            nodes[name] = node
        return list(nodes.values())

    def registered(self, node: Node, said: Draining | None) -> None:
        """Compare a registering node's drain with the operator's latest request; send that where they differ."""
        node.draining_in, node.own = 0, None
        known = self._drains.get(node.name)
        node.draining = said if known is None else known.draining
        if node.draining is not None:
            self._drains.set(node.name, node.draining)
        if node.draining != said:
            self._propose(node)
        elif said is None:
            self._drains.confirmed(node.name)

    def confirmed(self, node: Node, number: int, decision: api.Drain) -> None:
        """Handle the node's confirmation that it stored the request, unless a later request followed."""
        if decision.draining is None and number >= node.draining_in:
            self._drains.confirmed(node.name)

    def status(self, node: Node) -> NodeDrain:
        """Return a node's drain: its state, and the work that still runs there."""
        own = node.own or []
        left = [*self._held(node), *own[: max(0, MOST_NAMED - len(node.held))]]
        return NodeDrain(
            node=node.name,
            state=state(node),
            draining=node.draining,
            remaining=left,
            count=len(node.held) + len(own),
            jobs=[job.job for job in self._members.jobs.values() if job.origin == node.name][:MOST_NAMED],
        )

    # ---------------------------------------------------------------- inside

    def _set_drain(self, node: Node, draining: Draining | None, by: str) -> None:
        """Set or clear a node's drain; the node is told at once, or when it is back."""
        if node.draining == draining:
            return
        self._drains.set(node.name, draining)
        node.draining, node.own = draining, None
        if node.name in self._members.nodes:
            self._propose(node)
            self._table.refresh(node)
        self._dues.place_and_admit()
        self._executors.news = True
        what = "node takes work again" if draining is None else "node is drained"
        self._outbox.explain(what, node=node.name, by=by, tasks=len(node.held))

    def _propose(self, node: Node) -> None:
        by = "" if node.draining is None else f"{node.draining.by} drains it"
        node.draining_in = self._outbox.propose(node.name, api.Drain(draining=node.draining, why=by))

    def _stop(self, node: Node, why: str) -> None:
        """Stop the master's tasks on a node: commands wait for a place again, and a framework is told that its tasks
        are lost. A task known only from the node itself stays until its origin is back.
        """
        for held in list(node.held.values()):
            job, task = self._members.jobs.get(held.job), self._members.task(held.key)
            if held.leaving or job is None or task is None or task.request is None:
                continue
            self._tasks.withdraw(node, held, why, again=held.command)
            if held.command:
                self._tasks.requeue(job, task)
            else:
                self._tasks.end(job, task, Ended(by=EndedBy.LOST, reason=why))
            self._outbox.counts["stopped_for_drains"] += 1

    def _held(self, node: Node) -> Iterator[Remaining]:
        for held in list(node.held.values())[:MOST_NAMED]:
            job = self._members.jobs.get(held.job)
            name, user = (job.name, job.user) if job is not None else ("", "")
            yield Remaining(_kind(held), f"{held.job}/{held.task}", name, user)


def state(node: Node) -> NodeState:
    """Return the state of a node; ``expected``: it is reported only by others."""
    if not node.connected:
        return "away" if node.version or node.draining is not None else "expected"
    if node.draining is None:
        return "connected"
    return "draining" if node.held or node.own is None or node.own else "drained"


def _kind(held: Held) -> str:
    if not held.command:
        return "task"
    return "executor" if held.executor else "command"
