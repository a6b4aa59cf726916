"""Amounts of the resources by which a container is limited, as vectors."""

from __future__ import annotations

from collections.abc import Iterable

#: Cores, disk bytes/s, bytes/s sent, bytes of memory.
Amounts = tuple[float, float, float, float]
NOTHING: Amounts = (0.0, 0.0, 0.0, 0.0)
#: The resources of an amount, by their names in a profile.
RESOURCES = ("cpu_cores", "disk_bytes_per_s", "network_bytes_per_s", "memory_bytes")


def as_amounts(values: Iterable[float]) -> Amounts:
    """Return four values in the order of :data:`RESOURCES` as amounts."""
    cores, disk, network, memory = values
    return (cores, disk, network, memory)


def plus(one: Amounts, other: Amounts) -> Amounts:
    """Return the sum."""
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3])


def minus(one: Amounts, other: Amounts) -> Amounts:
    """Return the difference, at least 0."""
    return as_amounts(max(0.0, a - b) for a, b in zip(one, other, strict=True))


def most(several: Iterable[Amounts]) -> Amounts:
    """Return the maximum of each resource."""
    return as_amounts(map(max, zip(*several, strict=True)))
