"""The nodes as arrays, one row per node; only changed rows are recomputed, so no round examines every node.

Code that changes a node's records calls :meth:`NodeTable.touch`; a heartbeat recomputes the row at once. Each round
reads the rows as they are then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from master.core.node import Held, Node
from master.core.reported_availability import ReportedAvailability
from master.core.settings import CurrentSettings
from master.placement.lengths import TaskLengths
from master.placement.workers import COLUMN, Floats, Mask
from penstock.model import KINDS, KindAmounts, ResourceKind
from penstock.model.resource_vector import RESOURCES
from penstock.model.work import Opportunistic

Rows = NDArray[np.intp]
_CPU = ResourceKind.CPU


@dataclass(slots=True)
class _Stock:
    """Sums over the tasks that a node holds."""

    pending: list[float]  # of tasks missing in the last report, bytes per kind
    unsized: list[float]  # commands of unknown size per kind
    spoken: list[float]  # slots per kind needed by tasks on their way
    launched: list[float]  # UBIS: tasks launched since count in full: cores, disk and network slots, bytes
    memory_bytes: float = 0.0  # of regular tasks
    cores: float = 0.0  # promised to regular commands
    coming_cores: float = 0.0  # the part of `cores` missing in the last report
    lasting_cores: float = 0.0  # the part of `coming_cores` of tasks without a profile
    lasting_bytes: float = 0.0  # of the same tasks
    opportunistic: int = 0
    queued: int = 0  # sent to wait on the node and missing in its last report
    commands: dict[str, int] = field(default_factory=dict)  # by job, commands that take a CPU slot


class NodeTable:
    """Arrays over n rows; ``connected`` is false for absent nodes, ``takes_work`` also for drained ones.

    ``rates``, ``pending``, ``slots`` and ``idle`` are n × 3 (cpu, disk, network), ``slack`` is n × 4 (cores, disk
    slots, network slots, bytes), ``unpromised``, ``of_tasks`` and ``coming`` are n × resources, all others n.
    ``last_message_at`` is the time of the node's last message, or of its loss of connection (monotonic). Units as in
    :class:`master.placement.workers.Workers`.

    ``unpromised`` is what is free together with the room that is kept; ``of_tasks`` is what the master's regular tasks
    hold; ``coming`` is promised to those of them without a profile that the last report lacks.
    """

    _WIDE = ("rates", "pending", "slots", "idle")
    _FOUR = ("slack", "unpromised", "of_tasks", "coming")
    _PLAIN = (
        "memory_free", "memory_capacity", "cores_free", "cores", "t_alloc", "reservable", "opportunistic", "queue",
        "most_commands", "last_message_at",
    )  # fmt: skip
    _MASKS = ("connected", "takes_work")

    rates: Floats
    pending: Floats
    slots: Floats
    idle: Floats
    memory_free: Floats
    memory_capacity: Floats
    cores_free: Floats
    cores: Floats
    t_alloc: Floats
    slack: Floats
    unpromised: Floats
    of_tasks: Floats
    coming: Floats
    reservable: Floats
    opportunistic: Floats
    queue: Floats
    most_commands: Floats
    last_message_at: Floats
    connected: Mask
    takes_work: Mask

    def __init__(self, settings: CurrentSettings, lengths: TaskLengths) -> None:
        """``lengths`` gives EPT, and collects the lengths of placed tasks."""
        self._settings = settings
        self._lengths = lengths
        self.ept_s = 0.0  # EPT in seconds: configured, or derived from placed tasks
        self._reported = ReportedAvailability()
        self._unread: dict[str, None] = {}  # nodes with a report of availability that `_reported` lacks
        self.nodes: list[Node] = []
        self.rows: dict[str, int] = {}
        self.shape = 0  # increases when a node comes, goes, or changes capacity
        self.commands: list[dict[str, int]] = []  # of each row, by job: commands that hold a CPU slot or wait for one
        self._touched: dict[str, None] = {}
        self._unsized: set[str] = set()  # nodes with commands of unknown size, each of which counts as EPT
        self._size = 0
        self._heard_since = -math.inf  # no node's `last_message_at` is earlier
        self._large: tuple[int, Node | None] = (-1, None)  # the node with the most memory, for one `shape`
        self._grow(16)
        self.follow_lengths()

    def reconfigured(self) -> None:
        """Apply new settings to every row."""
        self.follow_lengths()
        self._touched.update(dict.fromkeys(self.rows))

    def see_length(self, node: Node, usage: KindAmounts) -> None:
        """Count the length of a task assigned to a node, at the rates of the node's slots."""
        row = self.rows[node.name]
        rates, slots = self.rates[row].tolist(), self.slots[row].tolist()
        work = (usage.cpu, usage.disk, usage.network)
        length_s = sum(amount * slot / rate for amount, slot, rate in zip(work, slots, rates, strict=True))
        if length_s:
            self._lengths.see(length_s)

    def follow_lengths(self) -> None:
        """Derive EPT again where it is not configured; mark the rows whose pending work depends on a changed EPT."""
        settings = self._settings.current
        ept_s = settings.ept_s or self._lengths.ept_s(settings.interval_s)
        if ept_s != self.ept_s:
            self.ept_s = ept_s
            self._touched.update(dict.fromkeys(self._unsized))

    # ------------------------------------------------------------ updates

    def add(self, node: Node) -> None:
        """Add a row for a new node, at the end."""
        if len(self.nodes) == self._size:
            self._grow(2 * self._size)
        self.rows[node.name] = len(self.nodes)
        self.nodes.append(node)
        self.commands.append({})
        self._reported.add()
        self.refresh(node)  # at once: `last_message_at` decides when an absent node is lost
        self.shape += 1

    def remove(self, node: Node) -> None:
        """Remove a lost node's row; later rows move up, so that ties still go to the earlier node."""
        row = self.rows.pop(node.name)
        del self.nodes[row], self.commands[row]
        for name in (*self._WIDE, *self._PLAIN, *self._FOUR, *self._MASKS):
            array = getattr(self, name)
            array[row:-1] = array[row + 1 :]
        self._reported.remove(row)
        self._unread.pop(node.name, None)
        for other in self.nodes[row:]:
            self.rows[other.name] -= 1
        self._touched.pop(node.name, None)
        self._unsized.discard(node.name)
        self.shape += 1

    def touch(self, node: Node) -> None:
        """Mark a node's row as stale."""
        self._touched[node.name] = None

    def settle(self) -> None:
        """Recompute the stale rows."""
        for name in list(self._touched):
            self.refresh(self.nodes[self.rows[name]])

    def refresh(self, node: Node) -> None:
        """Recompute a node's row."""
        self._touched.pop(node.name, None)
        row = self.rows[node.name]
        stock = _take_stock(node)
        load, capacity = node.load, node.capacity
        memory, slots = float(capacity.memory_bytes), node.slots
        said, pending, idle = load.rates, load.pending, load.idle
        reported = (
            said.cpu, said.disk, said.network, pending.cpu, pending.disk, pending.network,
            idle.cpu, idle.disk, idle.network, load.disk_busy, load.network_busy, load.used_cores,
        )  # fmt: skip
        numbers = [number if 0 < number < math.inf else 0.0 for number in reported]  # safe for calculations
        rates = numbers[:3]
        if not all(rates):  # the node has measured nothing yet of some kind
            rates = [
                found or most for found, most in zip(rates, self._settings.current.default_rates(capacity), strict=True)
            ]
        if any(stock.unsized):
            self._unsized.add(node.name)
        else:
            self._unsized.discard(node.name)
        self.rates[row] = rates
        self.slots[row] = slots
        self.pending[row] = [
            queued + sent + unsized * rate * self.ept_s / slot
            for queued, sent, unsized, rate, slot in zip(
                numbers[3:6], stock.pending, stock.unsized, rates, slots, strict=True
            )
        ]
        self.idle[row] = [free - spoken for free, spoken in zip(numbers[6:9], stock.spoken, strict=True)]
        self.idle[row, 0] -= stock.coming_cores
        self.memory_capacity[row], self.cores[row] = memory, capacity.cores
        self.reservable[row] = max(0.0, memory - node.external_memory_bytes)
        promised = max(load.promised_cores + stock.coming_cores, stock.cores)
        memory_left = memory - node.external_memory_bytes - stock.memory_bytes
        self.cores_free[row], self.memory_free[row] = (
            capacity.cores - node.kept_cores - promised, memory_left - node.kept_memory_bytes
        )  # fmt: skip
        self.unpromised[row] = capacity.cores - promised, 0.0, 0.0, memory_left
        self.of_tasks[row] = stock.cores, 0.0, 0.0, stock.memory_bytes
        self.coming[row] = stock.lasting_cores, 0.0, 0.0, stock.lasting_bytes
        if load.availability is not None or node.availability is not self._reported.reports[row]:
            self._unread[node.name] = None
        _, disks, links = slots
        disk_busy, network_busy, used_cores = numbers[9:]
        used = (used_cores, disk_busy * disks, network_busy * links, load.used_memory_bytes)
        self.slack[row] = [
            node.t_alloc * there - taken - launched
            for there, taken, launched in zip((capacity.cores, disks, links, memory), used, stock.launched, strict=True)
        ]
        self.opportunistic[row], self.queue[row] = stock.opportunistic, load.opportunistic_queue_free - stock.queued
        self.most_commands[row], self.t_alloc[row] = load.most_commands, node.t_alloc
        self.commands[row] = stock.commands
        self.connected[row], self.takes_work[row] = node.away_since is None, node.takes_work
        self.last_message_at[row] = node.last_message_at if node.away_since is None else node.away_since

    # ------------------------------------------------------------ queries

    def executor_capacity(self, rows: Rows) -> Floats:
        """Return the capacity for executors (rows × resources); 0 where unknown."""
        found = np.zeros((len(rows), len(RESOURCES)))
        found[:, 0], found[:, -1] = self.cores[rows], self.memory_capacity[rows]
        told = self._read().among(rows)
        found[told] = self._reported.capacity[rows[told]]
        return found

    def available_at_most(self, rows: Rows, for_s: float, now: float) -> Floats:
        """Return an upper bound (rows × resources) of what is available to executors in the ``for_s`` seconds from now
        on. Later assignments with a profile count as nothing.
        """
        found: Floats = self.unpromised[rows]
        told = self._read().among(rows)
        found[told] = self._reported.most(rows[told], for_s, now) - self.coming[rows[told]]
        return np.maximum(found, 0.0)

    def here(self) -> Rows:
        """Return the rows of the connected nodes, in the order in which they were added."""
        return self.connected[: len(self.nodes)].nonzero()[0]

    def taking(self) -> Rows:
        """Return the rows of the nodes that take work: connected, and not drained."""
        return self.takes_work[: len(self.nodes)].nonzero()[0]

    def silent(self, now: float, for_s: float) -> list[Node]:
        """Return the nodes that have been away or silent for longer than ``for_s``. Times of messages only grow, so no
        node is examined before the one that was silent longest could be.
        """
        if now - self._heard_since <= for_s:
            return []
        self._heard_since = float(self.last_message_at[: len(self.nodes)].min(initial=now))
        return [self.nodes[row] for row in (now - self.last_message_at[: len(self.nodes)] > for_s).nonzero()[0]]

    def could_hold(self, memory_bytes: float, cores: float, *, opportunistic: Opportunistic) -> bool:
        """Return whether any known node could hold a task when empty."""
        if self._large[0] != self.shape:
            self._large = (self.shape, max(self.nodes, key=lambda node: node.capacity.memory_bytes, default=None))
        large_one = self._large[1]
        if large_one is not None:
            share_of_it = usable(large_one.t_alloc, opportunistic)
            have = large_one.capacity
            if 0 < memory_bytes <= share_of_it * have.memory_bytes and cores <= share_of_it * have.cores:
                return True
        count = len(self.nodes)
        regular = 0.0 if opportunistic == "only" else 1.0
        share = np.maximum(self.t_alloc[:count], regular) if opportunistic else 1.0
        large = memory_bytes <= share * self.memory_capacity[:count]
        return bool((large & (cores <= share * self.cores[:count]) & (self.memory_capacity[:count] > 0)).any())

    # ------------------------------------------------------------ inside

    def _read(self) -> ReportedAvailability:
        """Return the reports of availability, once the latest ones are stored there."""
        for name in self._unread:
            row = self.rows[name]
            self._reported.take(row, self.nodes[row])
        self._unread.clear()
        return self._reported

    def _grow(self, size: int) -> None:
        for name in (*self._WIDE, *self._PLAIN, *self._FOUR, *self._MASKS):
            shape = (size, 3) if name in self._WIDE else (size, 4) if name in self._FOUR else size
            fresh = np.zeros(shape, dtype=bool if name in self._MASKS else float)
            if self._size:
                fresh[: self._size] = getattr(self, name)
            setattr(self, name, fresh)
        self._size = size


def usable(t_alloc: float, opportunistic: Opportunistic) -> float:
    """Return the usable part of an empty node: all of it for regular work, T_alloc of it for slack."""
    return max(0.0 if opportunistic == "only" else 1.0, t_alloc if opportunistic else 0.0)


def _take_stock(node: Node) -> _Stock:
    """Sum up what a node holds, in one pass."""
    stock = _Stock([0.0] * len(KINDS), [0.0] * len(KINDS), [0.0] * len(KINDS), [0.0] * 4)
    decided = node.decided
    for held in node.held.values():
        cores, memory = held.cores, held.memory_bytes
        coming = held.coming(decided)
        if not held.opportunistic or held.promoted_in is not None:
            stock.memory_bytes += memory
            if cores:
                stock.cores += cores
                stock.coming_cores += cores if coming else 0.0
            if coming and held.profile is None:
                stock.lasting_cores += cores
                stock.lasting_bytes += memory
        elif not held.leaving:
            stock.opportunistic += 1
        if held.in_a_slot and (coming if held.command else held.assigned_in > decided):
            _count_on_its_way(stock, held)
        if held.assigned_in > decided:
            stock.queued += held.queued
            stock.launched = [before + more for before, more in zip(stock.launched, held.holds(), strict=True)]
        if held.command and held.in_a_slot:
            if held.kind is _CPU:
                stock.commands[held.job] = stock.commands.get(held.job, 0) + 1
            if not held.leaving and held.unknown_size:
                stock.unsized[COLUMN[held.kind]] += 1
    return stock


def _count_on_its_way(stock: _Stock, held: Held) -> None:
    """Count the slot and the work of a task that the node's last report does not include."""
    if held.uses_core() and not held.cores:
        stock.spoken[0] += 1
    if held.command and held.kind is not _CPU:
        stock.spoken[COLUMN[held.kind]] += 1
    if not held.leaving:
        usage = held.usage
        stock.pending[0] += 0.0 if held.cores else usage.cpu
        stock.pending[1] += usage.disk
        stock.pending[2] += usage.network
