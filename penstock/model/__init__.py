"""PURE. The terms of the papers as types: resource kinds, quantities, monotasks, containers, nodes."""

from penstock.model.container import Choice, ContainerSpec, Ended, EndedBy, Limits, Notice
from penstock.model.executor import Executor, Sizing
from penstock.model.profile import Profile
from penstock.model.resources import KINDS, LEAST_PART_CORES, MOST_BEYOND, Capacity, KindAmounts, ResourceKind
from penstock.model.work import MonotaskSpec, TaskRequest

__all__ = [
    "KINDS",
    "LEAST_PART_CORES",
    "MOST_BEYOND",
    "Capacity",
    "Choice",
    "ContainerSpec",
    "Ended",
    "EndedBy",
    "Executor",
    "KindAmounts",
    "Limits",
    "MonotaskSpec",
    "Notice",
    "Profile",
    "ResourceKind",
    "Sizing",
    "TaskRequest",
]
