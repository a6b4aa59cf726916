"""PURE. The cluster's decisions: events in, instructions out. :class:`master.core.cluster.Cluster` is the one door."""

from master.core.cluster import Cluster
from master.core.settings import MasterSettings

__all__ = ["Cluster", "MasterSettings"]
