"""Room on nodes that is kept for tasks which wait: what becomes free there bit by bit adds up for them.

Nothing else that is promised its resources may take this room. Opportunistic work may run in it meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from master.core.drains import node_note
from master.core.job import Key, Task
from master.core.membership import Membership
from master.core.node import Node
from master.core.table import NodeTable, Rows
from master.placement.workers import Floats, Mask

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


class RoomSearch:
    """The search for a node on which to keep room, among those of ``rows``; nodes that are ``taken`` do not count."""

    def __init__(self, table: NodeTable, rows: Rows, taken: Iterable[str]) -> None:
        table.settle()
        self.rows = rows
        self._table = table
        self._free, self._ending = (np.ascontiguousarray(each[rows].T) for each in (table.unpromised, table.of_tasks))
        self._cores, self._memory = (
            np.where(each[rows] > 0, each[rows], 1.0) for each in (table.cores, table.memory_capacity)
        )
        self._may: Mask = np.ones(len(rows), dtype=np.bool_)
        for node in taken:
            self._may &= rows != table.rows.get(node, -1)

    def nearest(self, cores: float, memory_bytes: int, may: Mask, given_up: Floats) -> Room | None:
        """Return the room on the node that lacks the least of these amounts, as a part of its capacity. ``may``: which
        nodes count. Nodes where room was given up come last, the one where that was the longest ago first:
        ``given_up`` has the times, -inf for never.

        Only nodes count that lack some, and have them once the master's tasks there have ended.
        """
        more_cores, more_memory = cores - self._free[0], memory_bytes - self._free[-1]
        lacks = np.maximum(more_cores / self._cores, more_memory / self._memory)
        ends = (more_cores <= self._ending[0] + EPSILON) & (more_memory <= self._ending[-1])
        found = (self._may & may & ends & (lacks > EPSILON)).nonzero()[0]
        if not len(found):
            return None
        found = found[given_up[found] == given_up[found].min()]
        nearest = self._table.nodes[self.rows[found[lacks[found].argmin()]]]
        return Room(nearest.name, cores, memory_bytes)


@dataclass(eq=False, repr=False)
class KeptRoom:
    """The rooms by the tasks that they are kept for."""

    _table: NodeTable
    _members: Membership
    rooms: Mapping[Key, Room] = field(init=False, default_factory=dict)  # all
    promised: Mapping[Key, Room] = field(init=False, default_factory=dict)  # for tasks that a reservation promises it
    late: Mapping[Key, Room] = field(init=False, default_factory=dict)  # for an executor that has waited long
    _sums: dict[str, tuple[float, int, int]] = field(init=False, default_factory=dict)  # by node, with the tasks

    def keep_promised(self, rooms: Mapping[Key, Room]) -> None:
        """Keep these rooms for promised tasks from now on, and no others."""
        self.promised = rooms
        self.settle()

    def keep_late(self, rooms: Mapping[Key, Room]) -> None:
        """Keep these rooms for executors that have waited long, and no others; none beside those of promised tasks."""
        if rooms or self.late:
            self.late = rooms
            self.settle()

    def lacking(self, room: Room) -> float:
        """Return how much a room lacks, as a part of its node's capacity; at most 0 where it is free."""
        return _lacks(self._members.nodes[room.node], room.cores, room.memory_bytes)

    def search(self, rows: Rows) -> RoomSearch:
        """Return the search for room on the nodes of these rows, as they are now."""
        return RoomSearch(self._table, rows, [room.node for room in self.promised.values()])

    def settle(self) -> None:
        """Keep no room for tasks that no longer wait. The others' rooms count on their nodes, as far as what leaves
        there does not make them.
        """
        nodes, sums = self._members.nodes, dict[str, tuple[float, int, int]]()
        self.promised = {key: room for key, room in self.promised.items() if self._waits(key) and room.node in nodes}
        taken = {room.node for room in self.promised.values()}
        self.late = {
            key: room
            for key, room in self.late.items()
            if self._waits(key) and room.node in nodes and room.node not in taken and key not in self.promised
        }
        self.rooms = {**self.promised, **self.late}
        for room in self.rooms.values():
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

    def note(self) -> str:
        """Return a note on the nodes with kept room for the reason why something waits; empty without any."""
        return node_note("room kept for a reservation or a late executor", [*self._sums])

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


def _lacks(node: Node, cores: float, memory_bytes: int) -> float:
    """Return the shortage of a node for these amounts, as a part of its capacity."""
    lacks_cores = (cores - node.cores_free()) / (node.capacity.cores or 1.0)
    return max(lacks_cores, (memory_bytes - node.memory_free_bytes()) / (node.capacity.memory_bytes or 1))
