"""PURE. The order in which jobs are served, and how much each may hold: one module per policy, chosen by name."""

from master.ordering.by_hand import HandOrder, placed_by_hand
from master.ordering.choice import NAMES, OrderingSettings, ordering_of
from master.ordering.guarantees_first import Guarantee, guarantees_first
from master.ordering.las_mq import Inside
from master.ordering.multilevel import Multilevel
from master.ordering.policy import ClusterView, JobView, Key, Ordering, Ranking, Reason, StageView
from master.ordering.sizes import JobSizes, KnownSizes
from master.ordering.tenants import Tenants, TenantTree

__all__ = [
    "Guarantee",
    "NAMES",
    "ClusterView",
    "HandOrder",
    "Inside",
    "JobSizes",
    "JobView",
    "Key",
    "KnownSizes",
    "Multilevel",
    "Ordering",
    "OrderingSettings",
    "Ranking",
    "Reason",
    "StageView",
    "TenantTree",
    "Tenants",
    "ordering_of",
    "placed_by_hand",
    "guarantees_first",
]
