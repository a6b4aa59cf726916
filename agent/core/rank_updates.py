"""The ranks of this node's jobs, by their present members, containers and measured use; and reports of them.

The master reads the reports to explain to users why their jobs wait.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.containers import Containers
from agent.core.instructions import Instruction
from agent.core.membership import Membership
from agent.core.node_resources import NodeResources
from agent.core.ranks import Ranks
from agent.core.settings import NodeSettings
from penstock.wire.cluster_api import MOST_RANKS, NodeRanks


@dataclass(eq=False, slots=True)
class RankUpdates:
    """Feeds :class:`Ranks`; called whenever the order may have changed."""

    settings: NodeSettings
    _members: Membership
    _containers: Containers
    _ranks: Ranks
    _resources: NodeResources

    def rank(self, now: float) -> list[Instruction]:
        """Rank the jobs, and update the containers whose weight has changed."""
        live, members = self._containers.live.values(), self._members
        return self._ranks.rank(
            live, members.jobs, members.sessions.values(), self._resources.snapshot, now, self.settings.job_wait_max_s
        )


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
