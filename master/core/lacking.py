"""The resources that nodes lack for executors that a round did not place, as the nodes are when that is asked."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from master.core.executors import Reason
from master.core.free_capacity import Demand, Grid, free_capacity
from master.core.job import Task
from master.core.snapshot import Snapshots
from penstock.model.resource_vector import RESOURCES


class Lacking:
    """The first executor without a place of each job, until one job is asked for; from then on, all jobs' reasons.

    Every slot of every node is searched once for all of them. The search's arrays are dropped at its end.
    """

    def __init__(self, snapshots: Snapshots, grid: Grid, waiting: Iterable[tuple[Task, Demand, int]]) -> None:
        """``waiting``: executors in their order, with the number of their demand."""
        self._snapshots = snapshots
        self._grid = grid
        self._first: dict[str, tuple[Task, Demand, int]] = {}  # by job; empty after the search
        for one in waiting:
            self._first.setdefault(one[0].job, one)
        self._found: dict[str, str] = {}

    def reasons(self) -> dict[str, Reason]:
        """Return the reason of each job."""
        return {job: partial(self._of, job) for job in self._first}

    def _of(self, job: str) -> str:
        if self._first:
            self._found, self._first = self._search(), {}
        return self._found[job]

    def _search(self) -> dict[str, str]:
        snapshot = self._snapshots.take()
        nodes = snapshot.nodes()
        if not nodes:
            return dict.fromkeys(self._first, "no node is connected")
        every = np.ones(len(RESOURCES), dtype=np.bool_)
        room = free_capacity(self._grid, nodes, range(len(nodes)), every, snapshot.now)
        room.keep()
        anywhere: dict[int, str] = {}  # by demand, of executors that may go to every node
        found: dict[str, str] = {}
        for job, (task, demand, number) in self._first.items():
            allowed = snapshot.allowed(task)
            if allowed is not None:
                found[job] = room.lacks(demand, allowed)
                continue
            if number not in anywhere:
                anywhere[number] = room.lacks(demand, None)
            found[job] = anywhere[number]
        return found
