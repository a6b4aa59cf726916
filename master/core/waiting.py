"""The waiting stages for which a node may have room, found before the jobs are ranked and nodes are scored.

A task finds no node in a round (F = −∞ everywhere: Ursa §4.2.2, Eq. 1) if no node has the memory, the cores and the D
that it wants. Within a round these only decrease. A stage whose tasks fit no node at the start of a round therefore
places none in it, in any order of the jobs, and need not be examined.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from master.core.job import Asks, Job, Task, WaitingStage
from master.core.settings import CurrentSettings
from master.core.snapshot import RoundSnapshot, Snapshots, base_need
from master.core.table import NodeTable
from master.placement.workers import COLUMN, MEMORY, spare
from penstock.model import ResourceKind


@dataclass(eq=False, repr=False)
class WaitingStages:
    """Summarizes the stages of the jobs that wait for regular room."""

    _settings: CurrentSettings
    _table: NodeTable
    _snapshots: Snapshots

    def of(self, job: Job) -> dict[str, WaitingStage]:
        """Return a job's stages as in :meth:`Job.ready_for_regular`, each summarized again only after a change."""
        if job.waiting is None:
            known = job.summed_up
            names = dict.fromkeys(stage for stage, allows in job.ready if allows != "only")
            if names.keys() - known.keys():
                network = self._settings.current.network_aware
                known |= {
                    stage: _summed_up(tasks, network=network)
                    for stage, tasks in job.ready_for_regular().items()
                    if stage not in known
                }
            job.waiting = {stage: found for stage in names if (found := known.setdefault(stage, None)) is not None}
        return job.waiting

    def has_commands(self, job: Job) -> bool:
        """Return whether commands of a job wait for a regular place."""
        return bool(job.ready_count) and any(stage.commands for stage in self.of(job).values())

    def possible(self, jobs: list[Job]) -> set[tuple[str, str]]:
        """Return the (job, stage) pairs for which some node may have room; the others place nothing in this round.

        Only Algorithm 1 allows such a prediction; for other placements every pair is returned.
        """
        stages = ((job.job, name, stage) for job in jobs for name, stage in self.of(job).items())
        if self._settings.current.placement != "ursa":
            return {(job, name) for job, name, _ in stages}
        room = _Room(self._snapshots.take(), self._table)
        return {(job, name) for job, name, stage in stages if room.may_hold(stage)}


class _Room:
    """The most free memory in bytes on one node, among the nodes that satisfy a task's other demands."""

    def __init__(self, snapshot: RoundSnapshot, table: NodeTable) -> None:
        rows = snapshot.rows
        self._snapshot = snapshot
        self._memory, self._cores = table.memory_free[rows], table.cores_free[rows]
        rates, pending, slots = table.rates[rows], table.pending[rows], table.slots[rows]
        self._spare = ~(spare(table.ept_s, rates, pending, table.idle[rows, 0], self._cores, slots) <= 0.0)
        self._most: dict[Asks, float] = {}

    def may_hold(self, stage: WaitingStage) -> bool:
        """Return whether a node has room for some task of a stage."""
        most = self._most
        for asks, least_bytes in stage.least_bytes.items():
            if asks not in most:
                most[asks] = self._most_bytes(asks)
            if least_bytes <= most[asks]:
                return True
        return False

    def _most_bytes(self, asks: Asks) -> float:
        kinds, cores, nodes = asks
        fits = self._spare[list(kinds)].all(axis=0)
        if cores:
            fits &= cores - 1e-9 <= self._cores  # sums of fractions of cores, as in `Workers.fitness`
        if nodes:
            fits &= self._snapshot.named(nodes)
        return float(self._memory[fits].max(initial=-math.inf))


def _summed_up(tasks: list[Task], *, network: bool) -> WaitingStage:
    """Return the summary. Refusals and earlier copies also exclude nodes; placement checks those."""
    least: dict[Asks, float] = {}
    for task in tasks:
        need, request = base_need(task, network=network), task.request
        assert request is not None
        unknown = None if need.unknown_size is None else COLUMN[need.unknown_size]
        kinds = tuple(kind for kind in range(MEMORY) if need.amounts[kind] > 0 or kind == unknown)
        asks = kinds, need.cores, request.nodes
        least[asks] = min(need.amounts[MEMORY], least.get(asks, math.inf))
    return WaitingStage(tasks[0], len(tasks), least, any(is_command(task) for task in tasks))


def is_command(task: Task) -> bool:
    """Return whether a ready task is a command that takes a CPU slot."""
    request = task.request
    return request is not None and request.command is not None and request.command_kind is ResourceKind.CPU
