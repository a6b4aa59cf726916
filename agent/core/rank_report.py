"""Reports a node's ranks to the master when they change, to explain to users why their jobs wait."""

from __future__ import annotations

from agent.core.ranks import Ranks
from penstock.wire.ranks_api import MOST_RANKS, NodeRanks


class RankReport:
    """The last report of this node's order of jobs."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._reported = NodeRanks()
        self.read = True  # whether the master reads ranks; unknown until it answers our registration

    def changed(self) -> NodeRanks | None:
        """Return the order if it has changed since the last report."""
        if not self.read:
            return None
        standings = self._ranks.standings
        first = list(standings.values())[:MOST_RANKS]
        ranks = NodeRanks(jobs=[(each.job, each.weight) for each in first], of=len(standings))
        if ranks == self._reported:
            return None
        self._reported = ranks
        return ranks

    def link_opens(self) -> None:
        """Start over on a new connection: the master may be an older one that does not read ranks."""
        self._reported, self.read = NodeRanks(), False
