"""The cluster as one round sees it: a frozen snapshot, made at the start of the round and read by all its decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from master.core.dues import Clock
from master.core.job import Task
from master.core.membership import Membership
from master.core.node import Node
from master.core.settings import CurrentSettings, MasterSettings
from master.core.table import NodeTable, Rows, usable
from master.opportunistic import Slack, SlackDemand
from master.placement import AlgorithmOne, Need, PeakPlacement, Peaks, TaskPlacement, Unreserved, Workers
from master.placement.workers import COLUMN, Floats, Mask
from penstock.model import KINDS, ResourceKind, TaskRequest
from penstock.model.resource_vector import SlotVector
from penstock.model.units import counted, format_bytes


class RoundSnapshot:
    """The nodes that take work, in the order of their rows in the table: worker 0 is the node of the first row."""

    def __init__(self, settings: MasterSettings, members: Membership, table: NodeTable, now: float) -> None:
        table.settle()
        self._settings = settings
        self._members = members
        self._table = table
        self.now = now
        self.rows: Rows = table.taking()

    def node(self, worker: int) -> Node:
        """Return the node of a worker."""
        return self._table.nodes[int(self.rows[worker])]

    def nodes(self) -> list[Node]:
        """Return the nodes of all workers."""
        return [*map(self._table.nodes.__getitem__, self.rows.tolist())]

    def executor_capacity(self, which: Rows | slice = slice(None)) -> Floats:
        """Return the capacity of workers (all, or ``which``) for executors (workers × resources); 0 where unknown."""
        return self._table.executor_capacity(self.rows[which])

    def available_at_most(self, which: Rows, for_s: float) -> Floats:
        """Return an upper bound of what workers have available to executors in the next ``for_s`` seconds (workers ×
        resources).
        """
        return self._table.available_at_most(self.rows[which], for_s, self.now)

    def placement(self) -> TaskPlacement:
        """Return this round's placement of regular tasks."""
        settings, table, rows = self._settings, self._table, self.rows
        if settings.placement == "ursa":
            workers = Workers(
                table.ept_s,
                rates=table.rates[rows],
                pending=table.pending[rows],
                slots=table.slots[rows],
                idle_cores=table.idle[rows, 0],
                memory_free=table.memory_free[rows],
                memory_capacity=table.memory_capacity[rows],
                cores_free=table.cores_free[rows],
            )
            return AlgorithmOne(workers, chunk=settings.share_chunk_tasks, stage_aware=settings.stage_aware)
        peaks = settings.peaks()
        unreserved = Unreserved.of(
            peaks,
            cores=table.cores[rows],
            cores_free=table.cores_free[rows],
            memory=table.memory_capacity[rows],
            memory_free=table.memory_free[rows],
            reserved=np.array([reserved(table.nodes[row], peaks) for row in rows.tolist()]).reshape(len(rows), 3),
        )
        return PeakPlacement(settings.placement, unreserved, peaks)

    def slack(self) -> Slack:
        """Return the room for opportunistic work: T_alloc × capacity − utilization (UBIS, Algorithm 1, line 21)."""
        table, rows = self._table, self.rows
        return Slack(
            t_alloc=table.t_alloc[rows],
            left=table.slack[rows],
            capacity=np.column_stack((table.cores[rows], table.slots[rows, 1:], table.memory_capacity[rows])),
            idle=table.idle[rows],
            queue=table.queue[rows],
            room=self._room_after_preemptions(),
        )

    def _room_after_preemptions(self) -> Floats | None:
        """Return how many more opportunistic tasks each worker may hold; None where no node has a limit."""
        limits = [self._table.nodes[row].slack_limit for row in self.rows.tolist()]
        if not any(limits):
            return None
        most = [np.inf if limit is None or not limit.holds(self.now) else limit.most for limit in limits]
        left: Floats = np.array(most) - self._table.opportunistic[self.rows]
        return left

    def need(self, task: Task) -> Need:
        """Return a ready task's demand on regular placement."""
        need = base_need(task, network=self._settings.network_aware)
        allowed = self.allowed(task)
        if allowed is None:
            return need
        return Need(need.job, need.task, need.amounts, need.cores, need.unknown_size, allowed, need.holds)

    def slack_demand(self, task: Task) -> SlackDemand:
        """Return a ready task's demand on slack.

        A framework's task needs idle slots for its monotasks. A command needs no slot, because slack is the unused part
        of held slots. A command uses more than it states, so no resource may be exhausted.
        """
        assert task.request is not None
        allowed = self.allowed(task)
        if shunned := [name for name, pause in task.pauses.items() if not pause.over(self.now)]:
            allowed = np.full(len(self.rows), True) if allowed is None else allowed
            self._mark(allowed, shunned, False)
        return _on_slack(task.request, allowed)

    def slack_demand_of(self, request: TaskRequest) -> SlackDemand:
        """Return the demand on slack of any task with such a request."""
        return _on_slack(request, self.named(request.nodes) if request.nodes else None)

    def allowed(self, task: Task) -> Mask | None:
        """Return which workers a task may go to: the named nodes, without those that refused the task and have not
        reported since, and without those that still hold an earlier copy; None: all.
        """
        request = task.request
        assert request is not None
        nodes, leaving = self._members.nodes, self._members.leaving.get((task.job, task.name))
        if not request.nodes and not task.refusals and not leaving:
            return None
        mask = np.full(len(self.rows), not request.nodes)
        self._mark(mask, request.nodes, True)
        shy = [name for name, when in task.refusals.items() if name in nodes and nodes[name].heartbeats == when]
        self._mark(mask, [*shy, *(leaving or ())], False)
        return mask

    def named(self, names: Sequence[str]) -> Mask:
        """Return which workers are among these nodes."""
        mask = np.zeros(len(self.rows), dtype=np.bool_)
        self._mark(mask, names, True)
        return mask

    def _mark(self, mask: Mask, names: Sequence[str], value: bool) -> None:
        for name in names:
            row = self._table.rows.get(name)
            if row is not None and self._table.takes_work[row]:
                mask[np.searchsorted(self.rows, row)] = value


def _on_slack(request: TaskRequest, allowed: Mask | None) -> SlackDemand:
    command, usage, memory = request.command, request.usage, float(request.memory_bytes)
    if command is not None:
        return SlackDemand(holds(request), SlotVector(command.cpu_cores, memory_bytes=memory), allowed=allowed)
    needs = (usage.cpu > 0, usage.disk > 0, usage.network > 0, True)
    slot = ResourceKind.CPU if usage.cpu > 0 else None
    return SlackDemand(holds(request), SlotVector(memory_bytes=memory), needs, slot, allowed)


def reserved(node: Node, peaks: Peaks) -> tuple[float, float, float]:
    """Return the cores that regular tasks use without a promise, and their peaks of disk and network in bytes/s."""
    cores = disk = network = 0.0
    for held in node.held.values():
        if held.regular:
            usage = held.usage
            reads = peaks.of(usage.cpu, usage.disk, usage.network)
            cores, disk, network = cores + (not held.cores and held.uses_core()), disk + reads[0], network + reads[1]
    return cores, disk, network


def base_need(task: Task, *, network: bool) -> Need:
    """Return a ready task's demand on any node that it may go to."""
    if task.need is not None:
        return task.need
    request = task.request
    assert request is not None
    usage, command = request.usage, request.command
    task.need = Need(
        task.job,
        task.name,
        (usage.cpu, usage.disk, usage.network if network else 0.0, float(request.memory_bytes)),
        cores=command.cpu_cores if command is not None else 0.0,
        unknown_size=request.command_kind if command is not None and usage.of(request.command_kind) <= 0 else None,
        holds=holds(request),
    )
    return task.need


def holds(request: TaskRequest) -> SlotVector:
    """Return what a placed task holds.

    A command takes a slot of its kind, whatever work it states (as :meth:`master.core.node.Held.holds` counts it).
    """
    slots = [float(request.usage.of(kind) > 0) for kind in KINDS]
    if request.command is not None:
        slots[COLUMN[request.command_kind]] = 1.0
    cores = request.command.cpu_cores if request.command is not None else 0.0
    return SlotVector(cores or slots[0], slots[1], slots[2], float(request.memory_bytes))


@dataclass(eq=False, repr=False)
class Snapshots:
    """Takes the snapshots of a round, and tells which tasks no node could ever hold."""

    _settings: CurrentSettings
    _members: Membership
    _table: NodeTable
    _clock: Clock

    def take(self) -> RoundSnapshot:
        """Return the nodes as they are now."""
        return RoundSnapshot(self._settings.current, self._members, self._table, self._clock.now)

    def unfit(self, task: Task) -> str:
        """Return why no node of the cluster could hold the task even when empty; empty where one could."""
        request = task.request
        assert request is not None
        cores = request.command.cpu_cores if request.command is not None else 0.0
        if not request.nodes:
            if self._table.could_hold(request.memory_bytes, cores, opportunistic=task.opportunistic):
                return ""
            if not any(node.capacity.memory_bytes for node in self._members.nodes.values()):
                return ""
        named = [self._members.nodes[name] for name in request.nodes if name in self._members.nodes]
        known = [node for node in named if node.capacity.memory_bytes]
        if request.nodes and not known:
            return f"none of its nodes ({', '.join(request.nodes)}) is in the cluster"
        for node in known:
            share = usable(node.t_alloc, task.opportunistic)
            if request.memory_bytes <= share * node.capacity.memory_bytes and cores <= share * node.capacity.cores:
                return ""
        have = [node.capacity for node in (known if request.nodes else self._members.nodes.values())]
        most_bytes, most_cores = max(each.memory_bytes for each in have), max(each.cores for each in have)
        slack = " (on slack T_alloc of it)" if task.opportunistic else ""
        asked = _amounts(request.memory_bytes, cores, request.memory_bytes, cores)
        has = f"at most {_amounts(most_bytes, most_cores, request.memory_bytes, cores)}"
        return f"it asks for {asked}, and a node that it may use has {has}{slack}; ask for less"


def _amounts(memory_bytes: int, cores: float, asked_bytes: int, asked_cores: float) -> str:
    """Return the amounts, for people, of the resources that were asked for."""
    memory = [format_bytes(memory_bytes)] if asked_bytes else []
    return " and ".join([*memory, counted(cores, "core")] if asked_cores else memory)
