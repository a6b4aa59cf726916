"""What a container may send and receive: HTB classes on the links, and programs that mark, limit and count."""

from __future__ import annotations

from agent.network.enforcement import LinkReport
from agent.network.limiter import NetworkLimiter
from agent.network.probe import probe
from agent.network.shares import Shape
from agent.network.table import Counters

__all__ = ["NetworkLimiter", "Shape", "Counters", "LinkReport", "probe"]
