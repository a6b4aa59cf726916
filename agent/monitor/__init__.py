"""Samples of host and containers, as frozen records: one snapshot per tick."""

from agent.monitor.host import HostMonitor
from agent.monitor.sampler import Sampler

__all__ = ["HostMonitor", "Sampler"]
