"""Which nodes of the cluster take work (docs/drain.md). No name means this host's own node."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.client.link import Link
from penstock.wire.cluster_api import AskDrains, DrainNodes, Drains, UndrainNodes


class Nodes:
    """``agent.nodes`` of an :class:`~penstock.client.AgentClient`. All raise RpcError (``bad_request`` for ``nodes``:
    there is no such node; ``refused``: only operators may; ``unavailable``: there is no master, or it is away) and
    AgentUnavailable."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def drain(self, nodes: Iterable[str] = (), *, stop: bool = False) -> Drains:
        """They take no work any more; with ``stop`` what the master placed there is stopped, and done elsewhere."""
        asked = DrainNodes(nodes=list(nodes), stop=stop)
        return await self._link.call("drain", lambda: asked, Drains)

    async def undrain(self, nodes: Iterable[str] = ()) -> Drains:
        """They take work again."""
        asked = UndrainNodes(nodes=list(nodes))
        return await self._link.call("undrain", lambda: asked, Drains)

    async def drains(self, nodes: Iterable[str] = ()) -> Drains:
        """How far they are; for everybody to ask."""
        asked = AskDrains(nodes=list(nodes))
        return await self._link.call("drains", lambda: asked, Drains)
