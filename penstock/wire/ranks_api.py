"""The order of the jobs on a node, as its kernel has it (docs/ranks.md): what agents tell the master."""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.wire.agent_api import Params

#: So many ranked jobs of a node are told, the first ones; behind the fourth all weigh the least there is.
MOST_RANKS = 64
Count = Annotated[int, msgspec.Meta(ge=0)]


class NodeRanks(Params, frozen=True):
    """The ranked jobs of a node: ids, and what the containers of each weigh together (``cpu.weight``), the first first.

    A container that belongs to no job is ranked as a job of its own, by its id. ``of`` so many are ranked; at most the
    first 64 are in ``jobs``.
    """

    jobs: Annotated[list[tuple[str, Count]], msgspec.Meta(max_length=MOST_RANKS)] = []
    of: Count = 0
