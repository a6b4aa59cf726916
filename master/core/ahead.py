"""Placement of commands beyond the slots, on nodes whose kernel knows the order of jobs (docs/ranks.md).

Algorithm 1 places work where a node has less than EPT of it (Ursa §4.2.2). It counts all work of the node, including
that of jobs behind, although the node's kernel gives processors to the jobs in their order (agent/core/ranks.py). A
short job would wait for a long job's commands, and processors would idle while commands in slots wait for a disk.
Therefore a command that Algorithm 1 cannot place may go to a node that has the memory, if the job and the jobs before
it have fewer than :data:`MOST_BEYOND` times as many commands there as the node has slots: what these leave of the
processors is then the job's, and not that of jobs behind, which began earlier. No job has more commands on a node than
the node has slots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from master.core.dues import Clock, Dues
from master.core.job import Job, Task
from master.core.membership import Membership
from master.core.snapshot import RoundSnapshot, Snapshots
from master.core.table import NodeTable, Rows
from master.core.task_lifecycle import TaskLifecycle
from master.core.waiting import WaitingStages, is_command
from master.ordering import Ranking
from master.placement.workers import Floats, Mask, Need, open_slots
from penstock.model import MOST_BEYOND
from penstock.model.units import counted

#: More than the commands of any node: the number of commands decides only between nodes with as many slots left.
_MANY = 1e6


@dataclass(frozen=True, slots=True)
class _Commands:
    """The numbers of commands on the nodes; one element for each pair of a node and a job."""

    workers: Rows
    places: Floats  # the job's position in the order; infinite where the job is not in the order
    counts: Floats

    @classmethod
    def of(cls, snapshot: RoundSnapshot, table: NodeTable, places: dict[str, int]) -> _Commands:
        """Count the commands on the nodes of the snapshot."""
        found = [
            (worker, places.get(job, np.inf), count)
            for worker, row in enumerate(snapshot.rows.tolist())
            for job, count in table.commands[row].items()
        ]
        columns = np.array(found, dtype=float).reshape(len(found), 3).T
        return cls(columns[0].astype(np.intp), columns[1], columns[2])

    def on_each(self, which: Mask, workers: int) -> Floats:
        """Return each node's number of commands, of these elements."""
        counted: Floats = np.bincount(self.workers[which], self.counts[which], workers).astype(float)
        return counted


@dataclass(eq=False, repr=False)
class Ahead:
    """Places commands that Algorithm 1 could not place."""

    _clock: Clock
    _dues: Dues
    _table: NodeTable
    _members: Membership
    _snapshots: Snapshots
    _waiting: WaitingStages
    _tasks: TaskLifecycle

    def due(self, now: float) -> bool:
        """Return whether to try: a command waits, and a relevant change happened or a heartbeat's time has passed.

        Only this needs the ranking in a round that places nothing.
        """
        table = self._table
        if now < self._dues.ahead_due or not table.most_commands[: len(table.nodes)].any():
            return False
        return any(job.admitted and self._waiting.has_commands(job) for job in self._members.jobs.values())

    def waiting(self) -> set[str]:
        """Return the admitted jobs with waiting commands."""
        return {job.job for job in self._members.jobs.values() if job.admitted and self._waiting.has_commands(job)}

    def place(
        self,
        ranking: Ranking,
        offered: dict[str, dict[str, list[Task]]] | None,
        may: Callable[[str], bool] | None = None,
    ) -> list[tuple[int, Need]]:
        """Place commands that Algorithm 1 could not place and that may start ahead of others, in the order of the jobs,
        and count them in the ranking. Return the worker of each.

        ``offered`` limits the jobs in it to these tasks, by stage. ``may`` returns whether a job may have one more.
        None means no limit.
        """
        self._dues.looked_ahead(self._clock.now)
        places = {job: place for place, job in enumerate(ranking.order())}
        some = map(self._members.jobs.__getitem__, places if may is None else filter(may, places))
        waiting = [job for job in some if job.admitted and self._waiting.has_commands(job)]
        if not waiting:
            return []
        snapshot = self._snapshots.take()
        nodes = _Nodes(snapshot, self._table, places)
        placed: list[tuple[int, Need]] = []
        for job in waiting:
            if nodes.full:
                break
            nodes.turn_to(job)
            stages = job.ready_for_regular() if offered is None else offered.get(job.job, {})
            for task in [task for tasks in stages.values() for task in tasks if is_command(task) and not task.node]:
                worker = nodes.take(task) if may is None or may(job.job) else None
                if worker is not None:
                    need = snapshot.need(task)
                    self._tasks.assign(job, task, snapshot.node(worker), f"{nodes.why(worker)}; {ranking.why(job.job)}")
                    ranking.charge(job.job, need.holds)
                    placed.append((worker, need))
        return placed


class _Nodes:
    """The nodes as seen by one job after the other, in the order of the jobs."""

    def __init__(self, snapshot: RoundSnapshot, table: NodeTable, places: dict[str, int]) -> None:
        self._snapshot, rows = snapshot, snapshot.rows
        self._places = places
        self._commands = _Commands.of(snapshot, table, places)
        self._most, self._slots = table.most_commands[rows], table.slots[rows, 0]
        self._memory, self._cores = table.memory_free[rows].copy(), table.cores_free[rows].copy()
        self._count = self._commands.on_each(self._commands.places <= np.inf, len(rows))
        self._taken = np.zeros(len(rows))  # in this round, by jobs further ahead
        self._ahead = self._own = self._taken
        self._refused: set[tuple[float, int]] = set()

    @property
    def full(self) -> bool:
        """Return whether no node takes another command."""
        return not (self._count < self._most).any()

    def turn_to(self, job: Job) -> None:
        """Make this the job that commands are placed for."""
        place, workers = self._places[job.job], len(self._taken)
        self._ahead = self._commands.on_each(self._commands.places <= place, workers) + self._taken
        self._own = self._commands.on_each(self._commands.places == place, workers)
        self._refused = set()

    def take(self, task: Task) -> int | None:
        """Reserve room for a command where the jobs ahead leave the most slots; return the worker, or None."""
        request = task.request
        assert request is not None and request.command is not None
        cores, memory_bytes = request.command.cpu_cores, request.memory_bytes
        allowed = self._snapshot.allowed(task)
        if allowed is None and (cores, memory_bytes) in self._refused:
            return None
        slots = self._slots if cores else open_slots(self._cores, self._slots)
        fits = self._ahead < MOST_BEYOND * slots
        fits &= (self._own < slots) & (self._count < self._most)
        fits &= (self._memory >= memory_bytes) & (self._cores >= cores)
        if allowed is not None:
            fits &= allowed
        if not fits.any():
            if allowed is None:
                self._refused.add((cores, memory_bytes))
            return None
        worker = int(np.where(fits, self._slots - self._ahead - self._count / _MANY, -np.inf).argmax())
        for book in (self._ahead, self._own, self._count, self._taken):
            book[worker] += 1
        self._memory[worker] -= memory_bytes
        self._cores[worker] -= cores
        return worker

    def why(self, worker: int) -> str:
        """Explain the latest placement on this worker."""
        before, slots = self._ahead[worker] - 1, self._slots[worker]
        if before < slots:
            return f"ahead: of {counted(slots, 'slot')} the jobs up to this one's have {before:g}"
        return f"beyond: on {counted(slots, 'slot')} the jobs up to this one's have {counted(before, 'command')}"
