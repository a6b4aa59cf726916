"""Samples of the host and its containers, as frozen records: one snapshot per tick."""

from agent.monitor.host import HostMonitor
from agent.monitor.sampler import Sampler
from agent.monitor.watch import MemoryWatch

__all__ = ["HostMonitor", "MemoryWatch", "Sampler"]
