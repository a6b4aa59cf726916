"""The status page's figures for each resource of the cluster, from its nodes' latest reports.

:mod:`penstock.web.history` stores them for some minutes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from master.core.node import Node


def resources(nodes: Iterable[Node]) -> dict[str, dict[str, Any]]:
    """Return resource → ``unit``, ``capacity``, ``promised`` to regular work (None: nodes do not report it), ``used``
    and ``slack``, summed over the connected nodes; for disks and links the mean share in use.

    Slack is Σ max(0, T_alloc × capacity − used) over the nodes (UBIS §IV.A).
    """
    connected = [node for node in nodes if node.connected]
    loads = [node.load for node in connected]
    many = max(1, len(connected))
    t_allocs = [node.t_alloc for node in connected]
    cores = [node.capacity.cores for node in connected]
    memory = [float(node.capacity.memory_bytes) for node in connected]
    share = [1 / many] * len(connected)
    promised_bytes = float(sum(load.promised_memory_bytes for load in loads))
    return {
        name: {
            "unit": unit,
            "capacity": sum(capacity),
            "promised": promised,
            "used": sum(used),
            "slack": sum(max(0.0, t * there - taken) for t, there, taken in zip(t_allocs, capacity, used, strict=True)),
        }
        for name, unit, capacity, promised, used in (
            ("cpu", "cores", cores, sum(load.promised_cores for load in loads), [load.used_cores for load in loads]),
            ("memory", "bytes", memory, promised_bytes, [float(load.used_memory_bytes) for load in loads]),
            ("disk", "share", share, None, [load.disk_busy / many for load in loads]),
            ("network", "share", share, None, [load.network_busy / many for load in loads]),
        )
    }
