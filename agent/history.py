"""Each resource's capacity, promised, used and slack amounts for the status page, from the last sample.

PURE. :mod:`penstock.web.history` keeps them for some minutes.
"""

from __future__ import annotations

from typing import Any

from agent.core import Node


def resources(node: Node) -> dict[str, dict[str, Any]]:
    """Return resource → ``unit`` (cores, bytes, or fraction of the time or of the link), ``capacity``, ``promised`` to
    regular work (None: unknown, or impossible), ``used`` by containers and frameworks, and ``slack``.

    Slack is T_alloc × capacity − used (UBIS §IV.A).
    """
    ledger, settings, t_alloc = node.ledger(), node.settings, node.slack.t_alloc
    used, capacity, link = node.slack.in_use(ledger), settings.capacity, settings.link_bytes_per_s
    sent = ledger.promised_network_bytes_per_s / link if link else None
    return {
        name: {
            "unit": unit,
            "capacity": there,
            "promised": promised,
            "used": taken,
            "slack": max(0.0, t_alloc * there - taken),
        }
        for name, unit, there, promised, taken in (
            ("cpu", "cores", capacity.cores, ledger.promised_cores, used.cpu),
            ("memory", "bytes", capacity.memory_bytes, ledger.promised_memory_bytes, ledger.used_memory_bytes),
            ("disk", "share", 1.0, None, used.disk),
            ("network", "share", 1.0, sent, used.network),
        )
    }
