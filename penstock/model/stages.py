"""PURE. The order in which a job's stages first appeared, also for jobs that never end."""

from __future__ import annotations

#: The most stages that are stored; a dropped stage that appears again counts as new.
MOST_STAGES = 4096


class StageRanks:
    """Ranks rise with first appearance. For a job with ever new stages, the older half is dropped from time to time."""

    __slots__ = ("_next", "_ranks")

    def __init__(self) -> None:
        self._ranks: dict[str, int] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._ranks)

    def rank(self, stage: str) -> int:
        """Return a stage's rank; a new stage gets the next one."""
        rank = self._ranks.get(stage)
        if rank is None:
            if len(self._ranks) >= MOST_STAGES:
                self._ranks = dict(list(self._ranks.items())[MOST_STAGES // 2 :])
            rank = self._ranks[stage] = self._next
            self._next += 1
        return rank
