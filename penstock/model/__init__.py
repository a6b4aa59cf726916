"""PURE. What the papers talk about: resource kinds, quantities, monotasks, containers, nodes."""

from penstock.model.container import ContainerSpec, Ended, EndedBy, Limits
from penstock.model.resources import KINDS, Capacity, KindAmounts, ResourceKind
from penstock.model.work import MonotaskSpec, TaskRequest

__all__ = [
    "KINDS",
    "Capacity",
    "ContainerSpec",
    "Ended",
    "EndedBy",
    "KindAmounts",
    "Limits",
    "MonotaskSpec",
    "ResourceKind",
    "TaskRequest",
]
