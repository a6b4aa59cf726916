"""Room on nodes that is kept for tasks which wait: what becomes free there bit by bit adds up for them.

Nothing else that is promised its resources may take this room. Opportunistic work may run in it meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from master.core.job import Key, Task
from master.core.membership import Membership
from master.core.node import Node
from master.core.table import NodeTable

#: Fractions of cores add up with errors of this size.
EPSILON = 1e-6
_NONE = (0.0, 0, 0)


@dataclass(frozen=True, slots=True)
class Room:
    """Room on a node. ``reports`` is the node's heartbeat count when something was last about to leave for it."""

    node: str
    cores: float
    memory_bytes: int
    reports: int = 0


@dataclass(eq=False, repr=False)
class KeptRoom:
    """The rooms by the tasks that they are kept for."""

    _table: NodeTable
    _members: Membership
    promised: Mapping[Key, Room] = field(init=False, default_factory=dict)  # for tasks that a reservation promises it
    _sums: dict[str, tuple[float, int, int]] = field(init=False, default_factory=dict)  # by node, with the tasks

    def keep_promised(self, rooms: Mapping[Key, Room]) -> None:
        """Keep these rooms for promised tasks from now on, and no others."""
        if rooms or self.promised:
            self.promised = rooms
            self.settle()

    def settle(self) -> None:
        """Keep no room for tasks that no longer wait. The others' rooms count on their nodes, as far as what leaves
        there does not make them.
        """
        nodes, sums = self._members.nodes, dict[str, tuple[float, int, int]]()
        self.promised = {key: room for key, room in self.promised.items() if self._waits(key) and room.node in nodes}
        for room in self.promised.values():
            cores, memory_bytes, tasks = sums.get(room.node, _NONE)
            sums[room.node] = cores + room.cores, memory_bytes + room.memory_bytes, tasks + 1
        for name in {**self._sums, **sums}:
            node = nodes.get(name)
            if node is not None:
                cores, memory_bytes, node.kept_tasks = sums.get(name, _NONE)
                leaving = [held for held in node.held.values() if held.leaving and held.regular]
                node.kept_cores = max(0.0, cores - sum(held.cores for held in leaving))
                node.kept_memory_bytes = max(0, memory_bytes - sum(held.memory_bytes for held in leaving))
                self._table.touch(node)
        self._sums = sums

    def free_for(self, task: Task) -> Node | None:
        """Return the node where a promised task's room is free now, and where it may go; None: it has to wait."""
        key = task.job, task.name
        room = self.promised[key]
        node = self._members.nodes.get(room.node)
        if node is None or not node.takes_work or node.name in self._members.leaving.get(key, ()):
            return None
        if task.refusals.get(node.name) == node.heartbeats:
            return None
        fits = node.cores_free() >= room.cores - EPSILON and node.memory_free_bytes() >= room.memory_bytes
        return node if fits else None

    def _waits(self, key: Key) -> bool:
        task = self._members.task(key)
        return task is not None and not task.node
