"""Operators' requests about nodes, relayed by agents (docs/drain.md)."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from master.core import events as e
from master.core.draining import Drain
from penstock.wire import cluster_api as api
from penstock.wire.errors import refused
from penstock.wire.relayed_methods import OF_NODES
from penstock.wire.reservation_api import OnBehalf


def answer(drain: Drain, asked: OnBehalf, say: Callable[[e.Event], object], at: float) -> api.Drains:
    """Answer a request. ``say`` passes an event to the cluster and carries out its decisions; ``at`` is Unix time.

    Raises: RpcError: ``bad_request``: unknown call, or (``nodes``) unknown node; ``refused``: only operators may.
    """
    params: api.DrainNodes | api.UndrainNodes | api.AskDrains = OF_NODES.read(asked)
    nodes = tuple(params.nodes)
    if not isinstance(params, api.AskDrains) and not asked.operator:
        raise refused(
            f"{asked.user} is no operator: only operators drain nodes",
            remedy="ask root, or a member of the group that `operators` names in the agent's configuration",
        )
    match params:
        case api.DrainNodes(stop=stop):
            say(e.DrainRequested(nodes, asked.user, at, stop))
        case api.UndrainNodes():
            say(e.UndrainRequested(nodes, asked.user))
    told = [drain.status(node) for node in drain.known(nodes)]
    if not asked.operator:
        told = [structs.replace(node, remaining=[], jobs=[]) for node in told]
    return api.Drains(nodes=told)
