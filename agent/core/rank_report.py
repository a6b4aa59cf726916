"""The ranks of a node, told to the master where they have changed, for people who ask it why their jobs wait."""

from __future__ import annotations

from agent.core.ranks import Ranks
from penstock.wire.ranks_api import MOST_RANKS, NodeRanks


class RankReport:
    """What the master was told of the order of the jobs on this node."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._told = NodeRanks()
        self.read = True  # by the master; of one that has yet to answer our registration that is not known

    def changed(self) -> NodeRanks | None:
        """Return the order, if it is another one than the master was told last."""
        if not self.read:
            return None
        standings = self._ranks.standings
        first = list(standings.values())[:MOST_RANKS]
        ranks = NodeRanks(jobs=[(each.job, each.weight) for each in first], of=len(standings))
        if ranks == self._told:
            return None
        self._told = ranks
        return ranks

    def link_opens(self) -> None:
        """A new connection: the master knows nothing, and may be an older one that does not read ranks."""
        self._told, self.read = NodeRanks(), False
