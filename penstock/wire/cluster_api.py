"""Nodes that are drained: what operators ask of their host's agent, and what it relays to the master (docs/drain.md).

As with reservations the agent answers for who asks (:class:`penstock.wire.reservation_api.OnBehalf`).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.model.work import Name
from penstock.wire.agent_api import Params, Result

#: So much of what still runs is named in one place.
MOST_NAMED = 50
NodeNames = Annotated[list[Name], msgspec.Meta(max_length=10_000)]


class Draining(msgspec.Struct, frozen=True):
    """A node takes no work: who wants that, and since when (Unix time)."""

    by: str
    since: float


class Remaining(msgspec.Struct, frozen=True):
    """What still runs on a node. ``kind`` is ``command``, ``executor`` or ``task`` (a framework's) of what the master
    placed there; ``container`` or ``slots`` of what its own users and frameworks run by its agent."""

    kind: str
    id: str
    name: str
    user: str


class DrainNodes(Params, frozen=True):
    """These nodes (none named: this host's) take no work from now on, until ``undrain``; said again, nothing changes.
    With ``stop`` what the master placed there is stopped, too, and done again elsewhere. Only for operators."""

    nodes: NodeNames = []
    stop: bool = False


class UndrainNodes(Params, frozen=True):
    """These nodes (none named: this host's) take work again. Only for operators."""

    nodes: NodeNames = []


class AskDrains(Params, frozen=True):
    """How far these nodes (none named: this host's) are. What runs there is named to operators, counted to others."""

    nodes: NodeNames = []


class NodeDrain(Result, frozen=True):
    """``state`` is ``draining``, ``drained`` (nothing runs on it any more), ``connected`` (it takes work), ``away``, or
    ``expected``. ``remaining`` is what still runs, as far as it is known: at most 50 are named, ``count`` are there.
    ``jobs`` were registered there: they go on, and end if the host goes for good."""

    node: str
    state: str
    draining: Draining | None = None
    remaining: list[Remaining] = []
    count: int = 0
    jobs: list[str] = []


class Drains(Result, frozen=True):
    """In the order in which they were named."""

    nodes: list[NodeDrain]


#: framework → agent
REQUESTS: dict[str, tuple[type[Params], type[Result]]] = {
    "drain": (DrainNodes, Drains),
    "undrain": (UndrainNodes, Drains),
    "drains": (AskDrains, Drains),
}
