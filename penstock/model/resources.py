"""Resource kinds, and quantities per kind.

A *monotask* uses exactly one of the three kinds below (Ursa §4.1.3). Memory is not a kind: a task holds it during its
whole life, and it has no queue (Ursa §4.2.1).
"""

import enum

import msgspec

_INFINITE = float("inf")


class ResourceKind(enum.StrEnum):
    """The resource that a monotask uses."""

    CPU = "cpu"
    DISK = "disk"
    NETWORK = "network"


#: Every kind, in the order of vectors (the master's arrays have memory as their fourth column).
KINDS: tuple[ResourceKind, ...] = (ResourceKind.CPU, ResourceKind.DISK, ResourceKind.NETWORK)


def kind_of(name: ResourceKind | str) -> ResourceKind:
    """Return the kind of this name.

    Raises:
        ValueError: there is none; the message lists the kinds.
    """
    if name not in KINDS:
        raise ValueError(f"{name!r} is not a kind of resource; one of {', '.join(KINDS)}")
    return ResourceKind(name)


class KindAmounts(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One non-negative number per kind; its unit (bytes, bytes/s, slots) is documented where it is used."""

    cpu: float = 0.0
    disk: float = 0.0
    network: float = 0.0

    def is_valid(self) -> bool:
        """Return whether all amounts are finite and not negative."""
        return all(0 <= amount < _INFINITE for amount in (self.cpu, self.disk, self.network))

    def of(self, kind: ResourceKind) -> float:
        """Return the amount of one kind."""
        return float(getattr(self, kind.value))

    def __add__(self, other: "KindAmounts") -> "KindAmounts":
        return KindAmounts(self.cpu + other.cpu, self.disk + other.disk, self.network + other.network)

    def minus(self, other: "KindAmounts") -> "KindAmounts":
        """Subtract, but not below zero: an estimate that was too small must not become negative work."""
        return KindAmounts(
            max(0.0, self.cpu - other.cpu),
            max(0.0, self.disk - other.disk),
            max(0.0, self.network - other.network),
        )

    @classmethod
    def single(cls, kind: ResourceKind, amount: float) -> "KindAmounts":
        """Return ``amount`` of one kind, and 0 of the others."""
        return cls(**{kind.value: amount})


#: Where the kernel knows the order of jobs, commands may use up to this multiple of the CPU slots.
MOST_BEYOND = 4
#: The smallest part of a core that makes one more CPU slot: the kernel divides the core by weights.
LEAST_PART_CORES = 0.1


class Capacity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The resources that a node offers.

    ``cores`` may be fractional if the node is given a part of its host. ``disk_slots`` and ``network_slots`` are the
    concurrency limits of Ursa §4.2.3: one monotask per disk; 1 to 4 for the network.
    """

    cores: float
    memory_bytes: int
    disk_slots: int = 1
    network_slots: int = 2

    @property
    def cpu_slots(self) -> int:
        """The number of CPU slots: one per core, and at least one (Ursa §4.2.3)."""
        return max(1, int(self.cores))

    def cpu_slots_withheld(self, promised_cores: float) -> int:
        """Return the number of CPU slots that may not be granted in addition to promises of these cores."""
        if promised_cores < LEAST_PART_CORES:
            return 0
        slots = self.cpu_slots
        return slots - min(slots, max(0, int(self.cores - promised_cores + 1.0 - LEAST_PART_CORES)))

    def slots(self, kind: ResourceKind) -> int:
        """Return how many monotasks of ``kind`` may run at once."""
        if kind is ResourceKind.CPU:
            return self.cpu_slots
        return self.disk_slots if kind is ResourceKind.DISK else self.network_slots
