"""Where jobs stand, for people: in the latest order of the jobs, and on the nodes that run them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from master.core.records import Job, Node
from master.ordering import Ranking, Reason
from penstock.wire.jobs_api import NodeRank

#: So many of those before a job are named, the nearest, and so many of its nodes.
MOST_BEFORE = 10
MOST_NODES = 100


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job stands in the order of the jobs: 1 is the first ``of`` so many."""

    rank: int
    of: int
    reason: Reason


#: Of a job that has come since the order was looked at last, or is over.
NOWHERE = Place(0, 0, Reason(""))


class Places:
    """The latest ranking that was made, for whatever purpose. To look at it changes nothing of what is decided."""

    def __init__(self) -> None:
        self._ranking: Ranking | None = None
        self._ranks: dict[str, int] | None = None  # worked out when somebody asks

    def ranked(self, ranking: Ranking) -> None:
        """The jobs were ranked anew."""
        self._ranking, self._ranks = ranking, None

    def of(self, job: str) -> Place:
        """Return where a job stands."""
        if self._ranking is None:
            return NOWHERE
        if self._ranks is None:
            self._ranks = {name: rank for rank, name in enumerate(self._ranking.order(), start=1)}
        rank = self._ranks.get(job)
        return Place(rank, len(self._ranks), self._ranking.reason(job)) if rank is not None else NOWHERE


def on_nodes(job: Job, nodes: Iterable[Node]) -> list[NodeRank]:
    """Return a job's rank on each node where its containers have one, as far as their agents have told."""
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
