"""The order of jobs on a node as its kernel applies it (docs/ranks.md), sent by agents to the master."""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.wire.agent_api import Params

#: The most ranked jobs that a node reports; from the fifth on, all have the least weight.
MOST_RANKS = 64
Count = Annotated[int, msgspec.Meta(ge=0)]


class NodeRanks(Params, frozen=True):
    """The ranked jobs of a node, first ones first: ids, and the total weight of each job's containers (``cpu.weight``).

    A container without a job is ranked as a job of its own, by its id. ``of`` is the number of ranked jobs; ``jobs``
    has at most the first 64.
    """

    jobs: Annotated[list[tuple[str, Count]], msgspec.Meta(max_length=MOST_RANKS)] = []
    of: Count = 0
