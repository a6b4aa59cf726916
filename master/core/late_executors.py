"""The executors that have waited long: room is kept for one of them, as tasks take the cores of a node one by one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import nsmallest

import numpy as np

from master.core.executors import Executors
from master.core.free_capacity import Demand
from master.core.job import Key
from master.core.kept_room import EPSILON, KeptRoom, Room, RoomSearch
from master.core.membership import Membership
from master.core.table import NodeTable, Rows
from master.core.user_quotas import RoundQuotas, WaitingTask
from master.placement.workers import Floats, Mask

#: Room is kept for an executor that has waited this long. As long as an agent's ``job_wait_max_s``.
_WAIT_MAX_S = 30.0
#: Room that has not grown for this long is given up. For as long, none is kept on its node again; after that, other
#: nodes go first. Room on a node that no task has left for as long is left to executors with room elsewhere.
_GROWS_WITHIN_S = 30.0
#: Most executors for which a node is searched in a round. Where none is found, others come first in the next one.
_SEARCHED = 8


@dataclass(frozen=True, slots=True)
class Tried:
    """An executor that a round could not place. ``allowed`` (nodes) is None where every node is allowed."""

    demand: Demand
    allowed: Mask | None


@dataclass(eq=False, repr=False)
class _GivenUp:
    """When room was given up, by node; -inf for never. Monotonic times."""

    _table: NodeTable
    _at: dict[str, float] = field(init=False, default_factory=dict)
    _by_row: Floats = field(init=False, default_factory=lambda: np.zeros(0))
    _shape: int = field(init=False, default=-1)  # of the table for which `_by_row` holds

    def give_up(self, node: str, now: float) -> None:
        """Record that room on a node is given up."""
        self.by_row()[self._table.rows[node]] = now
        self._at[node] = now

    def at(self, node: str) -> float:
        """Return the time of a node."""
        return self._at.get(node, -math.inf)

    def by_row(self) -> Floats:
        """Return the times by the rows of the table. Nodes that are gone are dropped."""
        table = self._table
        if self._shape != table.shape:
            self._shape = table.shape
            self._at = {node: at for node, at in self._at.items() if node in table.rows}
            self._by_row = np.full(len(table.nodes), -math.inf)
            for node, at in self._at.items():
                self._by_row[table.rows[node]] = at
        return self._by_row


@dataclass(eq=False, repr=False)
class LateExecutors:
    """The waits of the executors, and the room that is kept because of them."""

    _table: NodeTable
    _members: Membership
    _executors: Executors
    _kept: KeptRoom
    _since: dict[Key, float] = field(init=False, default_factory=dict)  # since when executors wait, monotonic
    _in_vain: dict[Key, float] = field(init=False, default_factory=dict)  # when no node was found, monotonic
    _holder: Key | None = field(init=False, default=None)  # the executor that room is kept for
    _least_lacking: float = field(init=False, default=math.inf)  # what the room lacked at least, part of its node
    _grew_at: float = field(init=False, default=0.0)  # when that last decreased, monotonic
    _left: bool = field(init=False, default=False)  # tasks left the holder's node when room was kept there, or since
    _given_up: _GivenUp = field(init=False)

    def __post_init__(self) -> None:
        """Begin without a node where room was given up."""
        self._given_up = _GivenUp(self._table)

    def in_line(self, asking: list[WaitingTask]) -> list[WaitingTask]:
        """Return executors in the order in which their users' quotas admit them. The one whose room is free is the
        first, because its room idles until its turn.
        """
        holder = self._holder
        room = self._kept.late.get(holder) if holder is not None else None
        if room is None or self._kept.lacking(room) > EPSILON:
            return asking
        for one in asking:
            one.task.in_vain &= (one.task.job, one.task.name) != holder
        return sorted(asking, key=lambda one: (one.task.job, one.task.name) != holder)

    def placed(self, key: Key, now: float) -> None:
        """End the wait of an executor. If room was kept for it, its job's other executors wait anew: all of them may
        have waited since the submission, and other jobs' tasks would find no place until the last one is placed.
        """
        self._since.pop(key, None)
        if key == self._holder:
            self._since.update({other: now for other in self._since if other[0] == key[0]})

    def keep(self, tried: Mapping[Key, Tried], rows: Rows, limits: RoundQuotas | None, now: float) -> None:
        """Keep room for the executor that has waited the longest, if that is too long: for one at a time, so that few
        cores idle, on the node that lacks the least of it. A node where room was given up comes after the others.

        Executors whose room is on nodes that tasks leave go first. Otherwise each older one, whose node's tasks do not
        end, would hold up the others until its room is given up.

        Room stays with an executor that this round did not try: its forecast is on its way, or it is the turn of
        another one of its user. ``rows`` are the table's rows of the round's nodes, ``limits`` has the amounts held
        after this round.
        """
        waiting, jobs = self._executors.waiting, self._members.jobs
        self._since = {key: self._since.get(key, now) for key in waiting if jobs[key[0]].admitted}
        self._in_vain = {key: at for key, at in self._in_vain.items() if key in self._since}
        late = [key for key, since in self._since.items() if now - since >= _WAIT_MAX_S and self._may(key, tried)]
        found: tuple[Key, Room] | None = None
        left = False
        search = self._kept.search(rows)
        for key in nsmallest(_SEARCHED, late, key=self._line):
            room = self._room(key, tried.get(key), search, limits, now)
            if room is not None and key in self._kept.late and not self._grows(room, now):
                room = self._elsewhere(key, tried.get(key), search, limits, now)
            if room is not None and self._tasks_leave(key, room, now):
                found, left = (key, room), True
                break
            if room is not None and found is None:
                found = key, room
            else:
                self._in_vain[key] = now
        if found is not None and found[0] not in self._kept.late:
            self._least_lacking, self._grew_at = self._kept.lacking(found[1]), now
        self._holder, self._left = found[0] if found is not None else None, left
        self._kept.keep_late(dict([found]) if found is not None else {})

    def _line(self, key: Key) -> tuple[bool, float]:
        """Return the sort key of executors: the one that has room first, then the longest wait. An executor for which
        no node was found comes after those that waited at that time.
        """
        return key not in self._kept.late, max(self._since[key], self._in_vain.get(key, -math.inf))

    def _grows(self, room: Room, now: float) -> bool:
        """Return whether to keep the room. It is given up where its node's tasks do not end: cores idle in vain."""
        lacking = self._kept.lacking(room)
        if lacking < self._least_lacking - EPSILON:
            self._least_lacking, self._grew_at = lacking, now
        elif now - self._grew_at >= _GROWS_WITHIN_S:
            self._given_up.give_up(room.node, now)
            return False
        return True

    def _tasks_leave(self, key: Key, room: Room, now: float) -> bool:
        """Return whether tasks leave the room's node. Where they did, the holder's room stays until it is given up: the
        room itself keeps away short tasks. Left to another executor before, it would be kept again as soon as these
        leave the node once more.
        """
        kept = self._kept.late.get(key)
        stays = self._left and kept is not None and kept.node == room.node
        return stays or now - self._members.nodes[room.node].left_at < _GROWS_WITHIN_S

    def _elsewhere(
        self, key: Key, one: Tried | None, search: RoomSearch, limits: RoundQuotas | None, now: float
    ) -> Room | None:
        """Return the executor's next room after one was given up. Once room was given up on each of its nodes, it waits
        anew: it is the turn of others.
        """
        room = self._room(key, one, search, limits, now)
        if room is None or self._given_up.at(room.node) > self._since[key]:
            self._since[key] = now
            return None
        self._least_lacking, self._grew_at = self._kept.lacking(room), now
        return room

    def _may(self, key: Key, tried: Mapping[Key, Tried]) -> bool:
        return key not in self._kept.promised and (key in tried or key in self._kept.late)

    def _room(
        self, key: Key, one: Tried | None, search: RoomSearch, limits: RoundQuotas | None, now: float
    ) -> Room | None:
        """Return the room to keep for a late executor; ``one`` None: this round did not try it."""
        if one is not None:
            given_up = self._given_up.by_row()[search.rows]
            may = now - given_up >= _GROWS_WITHIN_S
            if one.allowed is not None:
                may &= one.allowed
            return search.nearest(*one.demand.largest, may, given_up)
        room, user = self._kept.late[key], self._members.jobs[key[0]].user
        forbidden = limits is not None and limits.why_not(user, (room.cores, room.memory_bytes))
        return None if forbidden or now - self._given_up.at(room.node) < _GROWS_WITHIN_S else room
