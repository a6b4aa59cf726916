"""Algorithm 1 without stage-awareness: "pick one task (instead of a whole stage) that has the highest score each time"
(Ursa §5.2). It shows the benefit of stage-awareness.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from master.ordering import Key, Ranking
from master.placement.scoring import Stage
from master.placement.ursa import Account, Placement, terms_of
from master.placement.workers import NeedsTable, Workers


def place_singly(
    workers: Workers,
    stages: list[Stage],
    ranking: Ranking,
    *,
    until: Key = (),
    account: Callable[[Account], None] | None = None,
) -> list[Placement]:
    """Place the task with the largest key, repeatedly, where its F is the largest. Consumes ``workers`` and the
    ranking. Tasks with a key below ``until`` are not placed.

    Ties go to the earlier stage, and in it to the earlier task. Within a round D never grows, hence neither does F: a
    stage's best task is searched again only when its worker has changed.
    """
    placements: list[Placement] = []
    opened = [_Open(stage, workers) for stage in stages if stage.needs and len(workers)]
    opened = [each for each in opened if each.find(ranking)]
    while opened:
        best = max(opened, key=lambda each: each.key)
        if best.key < until:
            break
        if best.worker in best.changed:
            if not best.look_again(workers, ranking):
                opened.remove(best)
            continue
        need, worker = best.stage.needs[best.row], best.worker
        before = workers.take(worker, need)[-1]
        terms = terms_of(before, workers.increase(need, worker))
        why = f"ursa: F = {best.score:.3g} (D×Inc: {terms}); the best of all single tasks, {ranking.why(need.job)}"
        placements.append(Placement(best.stage, need, worker, why))
        if account is not None:
            account(Account(placements[-1], best.key, best.score, False, best.fit[best.row].copy()))
        best.fit[best.row] = -np.inf
        all_move = ranking.charge(need.job, need.holds)
        for other in list(opened):
            other.changed.add(worker)
            mine = other is best or all_move or other.stage.job == need.job
            if mine and not other.look_again(workers, ranking):
                opened.remove(other)
    return placements


class _Open:
    """A stage during the round: F of its tasks, and the best of them. ``changed``: workers on which F is outdated."""

    __slots__ = ("changed", "fit", "key", "row", "score", "stage", "table", "worker")

    def __init__(self, stage: Stage, workers: Workers) -> None:
        self.stage = stage
        self.table = NeedsTable(stage.needs)
        self.fit = workers.fitness(self.table)
        self.changed: set[int] = set()
        self.key: Key = ()
        self.score = 0.0
        self.row = self.worker = -1

    def look_again(self, workers: Workers, ranking: Ranking) -> bool:
        """Update F, then continue as :meth:`find`."""
        columns = np.fromiter(self.changed, np.intp, len(self.changed))
        gone = self.fit[:, columns] == -np.inf  # placed or barred, which is permanent
        self.fit[:, columns] = np.where(gone, -np.inf, workers.fitness(self.table, columns))
        self.changed.clear()
        return self.find(ranking)

    def find(self, ranking: Ranking) -> bool:
        """Find the best task and its worker; return False where no task has one."""
        self.row, self.worker = divmod(int(self.fit.argmax()), self.fit.shape[1])
        self.score = float(self.fit[self.row, self.worker])
        self.key = ranking.key(self.stage.job, self.score)
        return self.score != -np.inf
