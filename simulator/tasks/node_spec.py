"""A simulated node: its agent's capacity and its hardware's speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.model import Capacity


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node: its agent's capacity and its hardware's rates.

    ``cpu_bytes_per_s`` is for one core, ``disk_bytes_per_s`` for one disk slot, ``link_bytes_per_s`` for the whole
    link. ``isolated_disk``: regular commands precede opportunistic ones at the disk, too (at the CPU they always do).
    """

    capacity: Capacity
    cpu_bytes_per_s: float = 50e6
    disk_bytes_per_s: float = 100e6
    link_bytes_per_s: float = 125e6
    isolated_disk: bool = True


def capacity_of(nodes: Sequence[NodeSpec]) -> dict[str, float]:
    """Return the total capacity of the nodes, in the units of :class:`Usage`."""
    return {
        "cpu": sum(node.capacity.cores for node in nodes),
        "memory": float(sum(node.capacity.memory_bytes for node in nodes)),
        "disk": float(sum(node.capacity.disk_slots for node in nodes)),
        "network": sum(node.link_bytes_per_s for node in nodes),
    }
