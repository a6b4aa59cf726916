"""The placement of a round's tasks, by name: Ursa's Algorithm 1, or those the paper compares it with (§5.1.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from master.ordering import Key, Ranking
from master.placement import ursa
from master.placement.scoring import Stage
from master.placement.singly import place_singly
from master.placement.ursa import Account, Placement
from master.placement.workers import COLUMN_NAMES, MEMORY, Need, NeedsTable, Workers
from penstock.model.units import counted

PlacementName = Literal["ursa", "tetris", "tetris2", "capacity"]


class TaskPlacement(Protocol):
    """A placement of one round, created from the cluster's state at that time."""

    def place(
        self,
        stages: list[Stage],
        ranking: Ranking,
        *,
        until: Key = (),
        account: Callable[[Account], None] | None = None,
    ) -> list[Placement]:
        """Return the placements in the order of decision; ``account`` is called for each. What has a key below
        ``until`` is not placed.
        """
        ...

    def take(self, worker: int, need: Need) -> None:
        """Count work that was placed on a worker by another rule."""
        ...

    def lacks(self, need: Need) -> dict[str, int]:
        """Return the reasons that bar a task, and from how many workers each."""
        ...

    def __len__(self) -> int:
        """Return the number of workers."""
        ...


class AlgorithmOne:
    """Ursa's TaskPlacement (§4.2.2)."""

    def __init__(self, workers: Workers, *, chunk: int, stage_aware: bool) -> None:
        self._workers = workers
        self._chunk = chunk
        self._stage_aware = stage_aware

    def place(
        self,
        stages: list[Stage],
        ranking: Ranking,
        *,
        until: Key = (),
        account: Callable[[Account], None] | None = None,
    ) -> list[Placement]:
        """See :func:`master.placement.ursa.place` and :func:`master.placement.singly.place_singly`."""
        if not self._stage_aware:
            return place_singly(self._workers, stages, ranking, until=until, account=account)
        return ursa.place(self._workers, stages, ranking, chunk=self._chunk, until=until, account=account)

    def take(self, worker: int, need: Need) -> None:
        """Count work that was placed on a worker by another rule."""
        self._workers.take(worker, need)

    def lacks(self, need: Need) -> dict[str, int]:
        """Return the reasons that bar a task, and from how many workers each."""
        workers, asks = self._workers, NeedsTable([need]).asks[0]
        masks = {f"{name} to spare": (workers.d[i] <= 0) & asks[i] for i, name in enumerate(COLUMN_NAMES[:3])}
        masks["memory"] = workers.memory_free < need.amounts[MEMORY]
        masks["unpromised cores"] = workers.cores_free < need.cores - 1e-9
        if need.allowed is not None:
            masks["permission for it (its nodes, or an earlier refusal)"] = ~need.allowed
        return {reason: int(mask.sum()) for reason, mask in masks.items() if mask.any()}

    def __len__(self) -> int:
        return len(self._workers)


def why_not(need: Need, placement: TaskPlacement) -> str:
    """Describe why the workers cannot take a task, for the status page."""
    if not len(placement):
        return "no node is connected"
    said = [f"{count} {'lacks' if count == 1 else 'lack'} {what}" for what, count in placement.lacks(need).items()]
    return f"of {counted(len(placement), 'node')} {', '.join(said) or 'none could take it in this order'}"
