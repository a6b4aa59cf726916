"""Draining of the cluster's nodes (docs/drain.md). An empty list of names means this host's own node."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.client.link import Link
from penstock.wire.cluster_api import AskDrains, DrainNodes, Drains, UndrainNodes


class Nodes:
    """``agent.nodes`` of an :class:`~penstock.client.AgentClient`.

    Every method raises RpcError (``bad_request`` for ``nodes``: unknown node; ``refused``: operators only;
    ``unavailable``: no master, or it is unreachable) and AgentUnavailable."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def drain(self, nodes: Iterable[str] = (), *, stop: bool = False) -> Drains:
        """Stop placing work on the nodes; with ``stop``, end the work that the master placed there and rerun it."""
        asked = DrainNodes(nodes=list(nodes), stop=stop)
        return await self._link.call("drain", lambda: asked, Drains)

    async def undrain(self, nodes: Iterable[str] = ()) -> Drains:
        """Allow new work on the nodes again."""
        asked = UndrainNodes(nodes=list(nodes))
        return await self._link.call("undrain", lambda: asked, Drains)

    async def drains(self, nodes: Iterable[str] = ()) -> Drains:
        """Return the progress of drains; any user may ask."""
        asked = AskDrains(nodes=list(nodes))
        return await self._link.call("drains", lambda: asked, Drains)
