"""Resource kinds and the quantities that are counted per kind.

A *monotask* uses exactly one of the three kinds below (Ursa §4.1.3). Memory is not a kind: it is held by a task for
as long as the task lives and has no queue (Ursa §4.2.1).
"""

from __future__ import annotations

import enum
import math

import msgspec


class ResourceKind(enum.StrEnum):
    """The resource that a monotask uses."""

    CPU = "cpu"
    DISK = "disk"
    NETWORK = "network"


#: Every kind, in the order used by vectors (the master's arrays have memory as their fourth column).
KINDS: tuple[ResourceKind, ...] = (ResourceKind.CPU, ResourceKind.DISK, ResourceKind.NETWORK)


class KindAmounts(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One non-negative number per kind; what the number counts (bytes, bytes/s, slots) is said where it is used."""

    cpu: float = 0.0
    disk: float = 0.0
    network: float = 0.0

    def is_valid(self) -> bool:
        """Return whether all are numbers from 0 on."""
        return all(0 <= amount < math.inf for amount in (self.cpu, self.disk, self.network))

    def of(self, kind: ResourceKind) -> float:
        """The amount of one kind."""
        return float(getattr(self, kind.value))

    def __add__(self, other: KindAmounts) -> KindAmounts:
        return KindAmounts(self.cpu + other.cpu, self.disk + other.disk, self.network + other.network)

    def minus(self, other: KindAmounts) -> KindAmounts:
        """Subtraction that stops at zero: an estimate that was too small never turns into negative work."""
        return KindAmounts(
            max(0.0, self.cpu - other.cpu),
            max(0.0, self.disk - other.disk),
            max(0.0, self.network - other.network),
        )

    @classmethod
    def single(cls, kind: ResourceKind, amount: float) -> KindAmounts:
        """All of ``amount`` in one kind."""
        return cls(**{kind.value: amount})


#: Where the kernel knows the order of jobs, a command starts while fewer than so many times the CPU slots are in use.
MOST_BEYOND = 4
#: The least part of a core for which one more CPU slot is granted: the kernel divides the core by weights.
LEAST_PART_CORES = 0.1


class Capacity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a node offers to the work on it.

    ``cores`` may be fractional when a node is given a part of its host. ``disk_slots`` and ``network_slots`` are the
    concurrency limits of Ursa §4.2.3: one monotask per disk; 1 to 4 for the network.
    """

    cores: float
    memory_bytes: int
    disk_slots: int = 1
    network_slots: int = 2

    @property
    def cpu_slots(self) -> int:
        """One CPU monotask per core, and at least one (Ursa §4.2.3)."""
        return max(1, int(self.cores))

    def cpu_slots_beside(self, kept_cores: float) -> int:
        """Return how many CPU slots may be granted beside promises that keep so many cores."""
        if kept_cores < LEAST_PART_CORES:
            return self.cpu_slots
        return min(self.cpu_slots, max(0, int(self.cores - kept_cores + 1.0 - LEAST_PART_CORES)))

    def slots(self, kind: ResourceKind) -> int:
        """How many monotasks of ``kind`` may run at once."""
        if kind is ResourceKind.CPU:
            return self.cpu_slots
        return self.disk_slots if kind is ResourceKind.DISK else self.network_slots
