"""The status page's figures for each resource of the cluster, from its nodes' latest reports.

:mod:`penstock.web.history` stores them for some minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from master.core.node import Node
from penstock.documents import Resource, Resources, Unit


def resources(nodes: Iterable[Node]) -> Resources:
    """Return the amounts of each resource over the connected nodes; for disks and links the mean share in use.

    Slack is Σ max(0, T_alloc × capacity − used) over the nodes (UBIS §IV.A).
    """
    connected = [node for node in nodes if node.connected]
    loads = [node.load for node in connected]
    many = max(1, len(connected))
    share = [1 / many] * len(connected)

    def of(unit: Unit, capacity: Sequence[float], promised: float | None, used: Sequence[float]) -> Resource:
        amounts = zip((node.t_alloc for node in connected), capacity, used, strict=True)
        slack = sum(max(0.0, t_alloc * there - taken) for t_alloc, there, taken in amounts)
        return Resource(unit=unit, capacity=sum(capacity), promised=promised, used=sum(used), slack=slack)

    memory = [float(node.capacity.memory_bytes) for node in connected]
    promised_bytes = float(sum(load.promised_memory_bytes for load in loads))
    cores, promised_cores = [node.capacity.cores for node in connected], sum(load.promised_cores for load in loads)
    return {
        "cpu": of("cores", cores, promised_cores, [load.used_cores for load in loads]),
        "memory": of("bytes", memory, promised_bytes, [float(load.used_memory_bytes) for load in loads]),
        "disk": of("share", share, None, [load.disk_busy / many for load in loads]),
        "network": of("share", share, None, [load.network_busy / many for load in loads]),
    }
