"""Commands of jobs that stand ahead are placed where those of jobs behind hold the slots (docs/ranks.md).

Algorithm 1 places work where a node has less than EPT of it (Ursa §4.2.2). All work of the node counts there, that of
jobs behind as well, though the node's kernel gives the processors to the jobs in their order (agent/core/ranks.py): a
short job would wait until a long one's commands are over. So what finds no room by Algorithm 1 may go to a node on
which the job itself and the jobs before it have fewer commands than the node has slots, if there is memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from master.core import lifecycle
from master.core.records import Job, Task
from master.core.snapshot import Picture
from master.core.table import Rows
from master.ordering import Ranking
from master.placement import Stage
from master.placement.workers import Floats
from penstock.model import ResourceKind

if TYPE_CHECKING:
    from master.core.cluster import Cluster


@dataclass(frozen=True, slots=True)
class _Commands:
    """Commands of the CPU on the nodes: how many of which job, an element for each pair of a node and a job."""

    workers: Rows
    places: Floats  # of the job in the order; infinite where it is not in it
    counts: Floats

    @classmethod
    def of(cls, cluster: Cluster, picture: Picture, places: dict[str, int]) -> _Commands:
        """Of the nodes of the picture."""
        found = [
            (worker, places.get(job, np.inf), count)
            for worker, row in enumerate(picture.rows.tolist())
            for job, count in cluster.table.commands[row].items()
        ]
        columns = np.array(found, dtype=float).reshape(len(found), 3).T
        return cls(columns[0].astype(np.intp), columns[1], columns[2])

    def up_to(self, place: float, workers: int) -> Floats:
        """How many each node has of the jobs up to this place, the job there included."""
        before = self.places <= place
        counted: Floats = np.bincount(self.workers[before], self.counts[before], workers).astype(float)
        return counted


def place(cluster: Cluster, ranking: Ranking, stages: list[Stage]) -> None:
    """Place what is left of ``stages`` and may start ahead of others, in the order of the jobs."""
    waiting = _waiting(cluster, stages)
    if not waiting:
        return
    places = {job: place for place, job in enumerate(ranking.order())}
    running = [place for job, place in places.items() if len(cluster.jobs[job].tasks) > cluster.jobs[job].ready_count]
    last = max(running, default=-1)
    if all(places[job] > last for job in waiting):
        return  # nobody is behind them
    picture = Picture(cluster)
    commands = _Commands.of(cluster, picture, places)
    table, rows = cluster.table, picture.rows
    most, slots = table.most_commands[rows], table.slots[rows, 0]
    memory, cores = table.memory_free[rows].copy(), table.cores_free[rows].copy()
    count = commands.up_to(np.inf, len(rows))
    taken = np.zeros(len(rows))  # in this round, by jobs further ahead
    for name in sorted(waiting, key=places.__getitem__):
        if places[name] > last:
            return
        job = cluster.jobs[name]
        ahead = commands.up_to(places[name], len(rows)) + taken
        for task in waiting[name]:
            request = task.request
            assert request is not None and request.command is not None
            wanted = request.command.cpu_cores
            fits = (ahead < slots) & (count < most) & (memory >= request.memory_bytes) & (cores >= wanted)
            allowed = picture.allowed(task)
            if allowed is not None:
                fits &= allowed
            if not fits.any():
                continue
            worker = int(np.where(fits, slots - ahead, -np.inf).argmax())
            why = f"ahead: of {slots[worker]:g} slots the jobs up to this one's have {ahead[worker]:g}"
            for book in (ahead, count, taken):
                book[worker] += 1
            memory[worker] -= request.memory_bytes
            cores[worker] -= wanted
            lifecycle.assign(cluster, job, task, picture.node(worker), f"{why}; {ranking.why(name)}")


def _waiting(cluster: Cluster, stages: list[Stage]) -> dict[str, list[Task]]:
    """By job the commands of the CPU that Algorithm 1 found no place for."""
    found: dict[str, list[Task]] = {}
    for stage in stages:
        job: Job = cluster.jobs[stage.job]
        for need in stage.needs:
            task = job.tasks[need.task]
            request = task.request
            if task.node or request is None or request.command is None or request.command_kind is not ResourceKind.CPU:
                continue
            found.setdefault(stage.job, []).append(task)
    return found
