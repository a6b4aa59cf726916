"""Positions of jobs for display: in the latest order of the jobs, and on the nodes that run them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from master.core.records import Job, Node
from master.ordering import Ranking, Reason
from penstock.wire.jobs_api import NodeRank

#: Bounds on the named jobs before a job (the nearest), and on its nodes.
MOST_BEFORE = 10
MOST_NODES = 100


@dataclass(frozen=True, slots=True)
class Place:
    """A job's position in the order of the jobs: ``rank`` 1 is the first of ``of`` jobs."""

    rank: int
    of: int
    reason: Reason


#: The position of a finished job, or of one that came after the latest ranking.
NOWHERE = Place(0, 0, Reason(""))


class Places:
    """The latest ranking, made for any purpose. Reading it affects no decision."""

    def __init__(self) -> None:
        self._ranking: Ranking | None = None
        self._ranks: dict[str, int] | None = None  # computed on demand

    def ranked(self, ranking: Ranking) -> None:
        """Store a new ranking."""
        self._ranking, self._ranks = ranking, None

    def of(self, job: str) -> Place:
        """Return a job's position."""
        if self._ranking is None:
            return NOWHERE
        if self._ranks is None:
            self._ranks = {name: rank for rank, name in enumerate(self._ranking.order(), start=1)}
        rank = self._ranks.get(job)
        return Place(rank, len(self._ranks), self._ranking.reason(job)) if rank is not None else NOWHERE


def on_nodes(job: Job, nodes: Iterable[Node]) -> list[NodeRank]:
    """Return a job's rank on each node where its containers have one, as reported by the agents."""
    found: list[NodeRank] = []
    for node in nodes:
        ranks = node.ranks.jobs if node.ranks is not None else []
        place = next((place for place, (name, _) in enumerate(ranks) if name == job.job), None)
        if place is None or node.ranks is None:
            continue
        use = job.work.seen.get(node.name)
        found.append(
            NodeRank(
                node=node.name,
                rank=place + 1,
                of=node.ranks.of,
                weight=ranks[place][1],
                service_container_s=use.service_s if use is not None else 0.0,
                before=[name for name, _ in ranks[:place]][-MOST_BEFORE:],
            )
        )
    return found[:MOST_NODES]
