"""Samples of the host and its containers, as frozen records: one snapshot per tick."""

from agent.monitor.host import HostMonitor
from agent.monitor.memory_watch import MemoryWatch
from agent.monitor.sampler import Sampler

__all__ = ["HostMonitor", "MemoryWatch", "Sampler"]
