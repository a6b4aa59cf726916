"""PURE. The cluster's decisions: events in, instructions out, through :class:`master.core.cluster.Cluster` alone."""

from master.core.cluster import Cluster
from master.core.settings import MasterSettings

__all__ = ["Cluster", "MasterSettings"]
