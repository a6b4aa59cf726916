"""What a container may send: HTB classes on the host's links, and the programs that put its packets into them."""

from __future__ import annotations

from agent.network.counters import Counters
from agent.network.egress import EgressLimiter
from agent.network.probe import probe

__all__ = ["EgressLimiter", "Counters", "probe"]
