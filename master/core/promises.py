"""The plan follower (Rayon §5.2): turn the plan's present promises into guarantees, and make room for promised tasks.

Unpromised work is stopped only where a promised task has no other room: then as few commands as possible, newest
first, are stopped and wait for a place again. A framework's own tasks cannot be stopped from here: their slots go to
promised jobs as they become free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from master.core.allowances import Allowances
from master.core.records import Held, Node, Task
from master.core.snapshot import holds
from master.ordering import Guarantee
from penstock.model import KINDS, ResourceKind

if TYPE_CHECKING:
    from master.core.cluster import Cluster

#: Promised tasks for which room is made in one round; the next round continues.
_AT_ONCE = 200
#: Fractions of cores add up with errors of this size.
EPSILON = 1e-6


def make_room(cluster: Cluster, now: float, limits: Allowances | None) -> None:
    """After placement, stop other work that blocks promised tasks without a place or slot. Tasks of users at their
    limits are skipped: they would not be placed in that room.
    """
    at = cluster.clock.unix(now)
    members, promised = cluster.guarantees.of(at)
    cluster.guarantees.plan.saw(at, _waiting(cluster, members, promised))
    if not promised:
        return
    protected = {job: members[job] for job in members if members[job] in promised}
    held = {task.node for job in protected for task in cluster.members.jobs[job].tasks.values() if task.node}
    looked_at = {name: _Node(cluster, node, protected) for name, node in cluster.members.nodes.items() if name in held}
    _give_slots(list(looked_at.values()), protected, promised)
    for task in list(_lacking(cluster, members, promised, limits)):
        fewest: _Node | None = None
        chosen: list[Held] = []
        for node in cluster.members.nodes.values():  # examine all nodes where a promised task lacks a place
            if not node.takes_work:
                continue
            if node.name not in looked_at:
                looked_at[node.name] = _Node(cluster, node, protected)
            one = looked_at[node.name]
            victims = one.in_the_way_of(task, _takes(cluster, task))
            if victims is not None and (fewest is None or len(victims) < len(chosen)):
                fewest, chosen = one, victims
        if fewest is not None:
            fewest.stop(chosen, f"{members[task.job]} is promised its place")
            fewest.keep_for(_takes(cluster, task))


def _waiting(cluster: Cluster, members: dict[str, str], promised: dict[str, Guarantee]) -> set[str]:
    """Return the reservations that lack part of their present promise and have ready tasks."""
    waiting = {members[job] for job in members if (found := cluster.members.jobs[job]).admitted and found.ready_count}
    return {one for one in waiting if one in promised and promised[one].lacking}


def _give_slots(nodes: list[_Node], protected: dict[str, str], promised: dict[str, Guarantee]) -> None:
    """Give slots of other jobs to commands that wait for one on their nodes, as far as their reservation's promise
    goes.
    """
    waiting = [(one, held) for one in nodes for held in one.waiting()]
    if not waiting:
        return
    promised = {name: replace(one, held=one.held[:]) for name, one in promised.items()}
    for _, held in waiting:  # a waiting command holds nothing yet
        promised[protected[held.job]].take([-amount for amount in held.holds()])
    for one, held in waiting:
        guarantee = promised[protected[held.job]]
        if guarantee.lacking:
            guarantee.take(held.holds())
            one.give_slot(held.kind)


def _lacking(
    cluster: Cluster, members: dict[str, str], promised: dict[str, Guarantee], limits: Allowances | None
) -> Iterable[Task]:
    """Yield ready tasks within their reservation's promise, in the order in which their jobs came."""
    count = 0
    for name in sorted(
        members, key=lambda name: (cluster.members.jobs[name].submitted_at, cluster.members.jobs[name].sequence)
    ):
        guarantee, job = promised.get(members[name]), cluster.members.jobs[name]
        if guarantee is None or not job.admitted:
            continue
        regular = [task for tasks in job.ready_for_regular().values() for task in tasks]
        for task in (*regular, *cluster.executors.waiting_of(job)):
            if not guarantee.lacking or count == _AT_ONCE:
                break
            assert task.request is not None
            if limits is not None and limits.take(job.user, cluster.user_limits.amounts_of(job, task)):
                continue
            guarantee.take(holds(task.request))
            count += 1
            yield task


@dataclass(frozen=True, slots=True)
class _Takes:
    """The resources a task takes of a node; ``kind`` is that of its slot, None where it runs in no slot."""

    cores: float
    memory_bytes: int
    kind: ResourceKind | None


def _takes(cluster: Cluster, task: Task) -> _Takes:
    request = task.request
    assert request is not None
    if task.elastic:  # an executor runs in no slot, and holds its largest demands
        cores, memory_bytes = cluster.executors.largest(cluster.members.jobs[task.job], task)
        return _Takes(cores, memory_bytes, None)
    command = request.command
    if command is None:
        return _Takes(0.0, request.memory_bytes, None)
    kind = None if command.cpu_cores and request.command_kind is ResourceKind.CPU else request.command_kind
    return _Takes(command.cpu_cores, request.memory_bytes, kind)


class _Node:
    """The resources of a node that would be free once all withdrawn tasks have left.

    Its slots belong to the commands that came first: later ones wait on the node for them.
    """

    def __init__(self, cluster: Cluster, node: Node, protected: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._node = node
        self._protected = protected
        staying = [held for held in node.held.values() if held.leaving_in is None]
        leaving = [held for held in node.held.values() if held.regular and held.leaving_in is not None]
        #: Newest first.
        self._others = [
            held for held in reversed(staying) if held.regular and held.command and held.job not in protected
        ]
        self._memory = float(node.memory_free_bytes() + sum(held.memory_bytes for held in leaving))
        self._cores = node.cores_free() + sum(held.cores for held in leaving)
        self._in_line = {
            kind: [held for held in staying if held.command and held.in_a_slot and held.kind is kind] for kind in KINDS
        }
        self._slots = {kind: int(slots) for kind, slots in zip(KINDS, node.slots, strict=True)}

    def waiting(self) -> list[Held]:
        """Return promised commands for which no slot is left."""
        return [
            held
            for kind, line in self._in_line.items()
            for held in line[self._slots[kind] :]
            if held.job in self._protected
        ]

    def give_slot(self, kind: ResourceKind) -> None:
        """Stop the newest command of another job that has a slot of this kind."""
        victims = self._with_slots(kind)[:1]
        self.stop(victims, f"what is promised waits for a slot of {kind}")

    def in_the_way_of(self, task: Task, takes: _Takes) -> list[Held] | None:
        """Return the commands to stop so that a task fits; None: it cannot fit here."""
        request, kind = task.request, takes.kind
        assert request is not None
        if request.nodes and self._node.name not in request.nodes:
            return None
        cores, memory = self._cores - takes.cores, self._memory - takes.memory_bytes
        short = kind is not None and self._slots[kind] <= len(self._in_line[kind])
        with_slots = self._with_slots(kind) if kind is not None else []
        victims: list[Held] = []
        for held in self._others:
            if cores >= -EPSILON and memory >= 0 and not short:
                break
            has_slot = held in with_slots
            if (short and has_slot) or (cores < -EPSILON and held.cores) or (memory < 0 and held.memory_bytes):
                victims.append(held)
                cores, memory = cores + held.cores, memory + held.memory_bytes
                short = short and not has_slot
        return victims if cores >= -EPSILON and memory >= 0 and not short else None

    def stop(self, victims: list[Held], why: str) -> None:
        """Stop these commands; they wait for a place again."""
        for held in victims:
            self._others.remove(held)
            if held in self._in_line[held.kind]:  # executors have no slot
                self._in_line[held.kind].remove(held)
            self._memory += held.memory_bytes
            self._cores += held.cores
            job, task = self._cluster.members.jobs.get(held.job), self._cluster.members.task(held.key)
            self._cluster.tasks.withdraw(self._node, held, why)
            self._cluster.counts["preempted_for_promises"] += 1
            self._cluster.outbox.explain("preempted", node=self._node.name, job=held.job, task=held.task, why=why)
            if job is not None and task is not None and task.node == self._node.name:
                self._cluster.tasks.requeue(job, task)

    def keep_for(self, takes: _Takes) -> None:
        """Reserve the room, so that no other task counts on it."""
        self._memory -= takes.memory_bytes
        self._cores -= takes.cores
        if takes.kind is not None:
            self._slots[takes.kind] -= 1

    def _with_slots(self, kind: ResourceKind) -> list[Held]:
        """Return other jobs' commands that have a slot, newest first."""
        return [held for held in reversed(self._in_line[kind][: self._slots[kind]]) if held.job not in self._protected]
