"""The amounts of the four resources by which containers, executors and reservations are limited, as one vector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class ResourceVector(NamedTuple):
    """Cores, bytes/s of the disks, bytes/s sent, and bytes of memory (the resources of Elasecutor §III.B).

    Other vectors: :class:`SlotVector` has slots instead of rates, :class:`KindAmounts` has no memory, as that is not a
    kind of monotask.
    """

    cpu_cores: float = 0.0
    disk_bytes_per_s: float = 0.0
    network_bytes_per_s: float = 0.0
    memory_bytes: float = 0.0

    def plus(self, other: ResourceVector) -> ResourceVector:
        """Return the sum."""
        return ResourceVector(self[0] + other[0], self[1] + other[1], self[2] + other[2], self[3] + other[3])

    def minus(self, other: ResourceVector) -> ResourceVector:
        """Return the difference, at least 0."""
        return ResourceVector._make(max(0.0, a - b) for a, b in zip(self, other, strict=True))

    @classmethod
    def highest(cls, several: Iterable[ResourceVector]) -> ResourceVector:
        """Return the maximum of each resource."""
        return cls._make(map(max, zip(*several, strict=True)))


NOTHING = ResourceVector()
#: The resources, by their names in profiles and documents.
RESOURCES = ResourceVector._fields


class SlotVector(NamedTuple):
    """What placed tasks hold, and the capacity for it: cores, slots of the queues, and bytes of memory."""

    cores: float = 0.0
    disk_slots: float = 0.0
    network_slots: float = 0.0
    memory_bytes: float = 0.0


HOLDS_NOTHING = SlotVector()
