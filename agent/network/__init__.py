"""Network limits of containers: HTB classes on the links, and BPF programs that mark, limit and count."""

from __future__ import annotations

from agent.network.enforcement import LinkReport
from agent.network.limiter import NetworkLimiter
from agent.network.probe import probe
from agent.network.shares import Shape
from agent.network.table import Counters

__all__ = ["NetworkLimiter", "Shape", "Counters", "LinkReport", "probe"]
