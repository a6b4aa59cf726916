"""The HTB class of a container's packets, and the parameters of that class: pure.

On a link with a known rate, one class represents the link. Below it, each container with its own promise or limit has
its own class; all other regular containers share one, all other opportunistic ones another, so that the unlimited
majority costs no system call. HTB first serves each class up to its rate and lends the rest of the link by priority: 0
for regular containers, in proportion to their promises, 7 for opportunistic ones, which get the remainder. Among the
containers that share a class, those of the first job by rank (agent/core/ranks.py) have priority 0 as well, those of
the second 1, those of all others 2, each in a class of its own.

On a link with an unknown rate there is nothing to lend: a container's own class is a limit, and other packets are
unmarked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.core.confinement import Confinement

#: 10 kbit/s. Below, a single segment of 64 KB would take longer than the minute that HTB looks back.
MIN_RATE_BYTES_PER_S = 1250
#: Minor numbers; slots go up to 0x1fff. A container's class gets another number with another priority, because HTB
#: keeps a class at its old priority until its queue has been empty once. The low four bits are 0 because without our
#: root some qdiscs interpret them as a band.
REGULAR, OPPORTUNISTIC, LINK = 0x4000, 0x4010, 0x4020
#: By rank, which is also the priority; the last is for all further ranks.
RANKED = (REGULAR, 0x4030, 0x4040)
_OWN_OPPORTUNISTIC = 0x2000
#: The guaranteed rates of a shared class, of a container's own class without a promise, and of jobs behind the first,
#: as parts of the link (1/n). After a promotion, past sending must be paid off at this rate, so it is not tiny.
_SHARED_PART, _OWN_PART = 100, 500
_LAST_PRIORITY = 7
_LARGEST_QUANTUM_BYTES, _SMALLEST_QUANTUM_BYTES = 60_000, 1514


@dataclass(frozen=True, slots=True)
class Shape:
    """One container's network settings, in bytes per second on the wire."""

    rate_bytes_per_s: int = 0
    """Promised egress; 0: none. An opportunistic container has none."""
    ceil_bytes_per_s: int | None = None
    """Limit of egress; None: the link."""
    ingress_bytes_per_s: int | None = None
    opportunistic: bool = False
    rank: int = 0
    """Its job's rank, 0 for the first and for containers without a job."""


def shape_of(confinement: Confinement, *, ranked: bool = True) -> Shape:
    """Return a container's network settings; not ``ranked``: as if its job were the first."""
    return Shape(
        rate_bytes_per_s=confinement.network_rate_bytes_per_s,
        ceil_bytes_per_s=confinement.network_egress_bytes_per_s,
        ingress_bytes_per_s=confinement.network_ingress_bytes_per_s,
        opportunistic=confinement.opportunistic,
        rank=confinement.rank if ranked else 0,
    )


def enforceable(shape: Shape) -> tuple[dict[str, str], Shape]:
    """Return the settings that no link can enforce, and a shape with the rest."""
    failed: dict[str, str] = {}
    ceil, ingress = shape.ceil_bytes_per_s, shape.ingress_bytes_per_s
    if ceil is not None and ceil < MIN_RATE_BYTES_PER_S:
        failed["network_egress_bytes_per_s"] = _too_slow(ceil)
        ceil = None
    if ingress is not None and ingress < MIN_RATE_BYTES_PER_S:
        failed["network_ingress_bytes_per_s"] = _too_slow(ingress)
        ingress = None
    return failed, replace(shape, ceil_bytes_per_s=ceil, ingress_bytes_per_s=ingress)


def _too_slow(bytes_per_s: int) -> str:
    return f"{bytes_per_s} bytes/s cannot be enforced; remedy: ask for at least {MIN_RATE_BYTES_PER_S} (10 kbit/s)"


@dataclass(frozen=True, slots=True)
class HtbClass:
    """One class of ours; ``minor`` is the low half of its id, ``parent`` that of its parent, 0: the root."""

    minor: int
    parent: int
    rate_bytes_per_s: int
    ceil_bytes_per_s: int
    priority: int = 0

    def parameters(self) -> dict[str, int]:
        """Return HTB's parameters, for pyroute2.

        The quantum divides lendable bandwidth in proportion to the rates; without one the kernel logs a warning.
        """
        return {
            "rate": self.rate_bytes_per_s,
            "ceil": self.ceil_bytes_per_s,
            "burst": _burst_bytes(self.rate_bytes_per_s),
            "cburst": _burst_bytes(self.ceil_bytes_per_s),
            "quantum": min(max(_SMALLEST_QUANTUM_BYTES, self.rate_bytes_per_s // 1000), _LARGEST_QUANTUM_BYTES),
            "prio": self.priority,
        }

    def draining(self, bytes_per_s: int) -> HtbClass:
        """Return the class for the packets still waiting in it, while new packets go to another."""
        return replace(self, rate_bytes_per_s=bytes_per_s, ceil_bytes_per_s=bytes_per_s)


def _burst_bytes(bytes_per_s: int) -> int:
    """Return 40 ms of the rate, from 100 Mbit/s on half a megabyte, from 500 Mbit/s on 8 ms; at least ten packets.

    A container loses what it could not send while the processor was away for longer than this. Below 4 ms accuracy
    suffers above 100 Mbit/s, below ten packets at low rates (docs/benchmarks/kernel-network.md).
    """
    return max(16_000, bytes_per_s // 125, min(500_000, bytes_per_s // 25))


def common(link_bytes_per_s: int) -> list[HtbClass]:
    """Return a link's classes that are independent of containers, parents first; none if its rate is unknown (0)."""
    if not link_bytes_per_s:
        return []
    shared = max(MIN_RATE_BYTES_PER_S, link_bytes_per_s // _SHARED_PART)
    behind = max(MIN_RATE_BYTES_PER_S, link_bytes_per_s // _OWN_PART)
    return [
        HtbClass(LINK, 0, link_bytes_per_s, link_bytes_per_s),
        HtbClass(REGULAR, LINK, shared, link_bytes_per_s),
        *(HtbClass(minor, LINK, behind, link_bytes_per_s, place) for place, minor in enumerate(RANKED) if place),
        HtbClass(OPPORTUNISTIC, LINK, shared, link_bytes_per_s, _LAST_PRIORITY),
    ]


def own(slot: int, shape: Shape, link_bytes_per_s: int, room_bytes_per_s: int) -> HtbClass | None:
    """Return the container's own class on a link, if it needs one there.

    Args:
        link_bytes_per_s: 0: unknown.
        room_bytes_per_s: the rate not promised yet on the link.
    """
    minor = own_minor(slot, shape)
    priority = _LAST_PRIORITY if shape.opportunistic else 0
    if not link_bytes_per_s:
        if shape.ceil_bytes_per_s is None:
            return None
        return HtbClass(minor, 0, shape.ceil_bytes_per_s, shape.ceil_bytes_per_s, priority)
    promised = promise(shape)
    if shape.ceil_bytes_per_s is None and not promised:
        return None
    ceil = min(shape.ceil_bytes_per_s or link_bytes_per_s, link_bytes_per_s)
    least = max(MIN_RATE_BYTES_PER_S, link_bytes_per_s // _OWN_PART)
    return HtbClass(minor, LINK, min(max(least, min(promised, room_bytes_per_s)), ceil), ceil, priority)


def promise(shape: Shape) -> int:
    """Return the rate that HTB guarantees the container: at most its limit."""
    if shape.opportunistic:
        return 0
    return min(shape.rate_bytes_per_s, shape.ceil_bytes_per_s or shape.rate_bytes_per_s)


def own_minor(slot: int, shape: Shape) -> int:
    """Return the number of a container's own class."""
    return slot | (_OWN_OPPORTUNISTIC if shape.opportunistic else 0)


def own_minors(slot: int) -> tuple[int, int]:
    """Return both numbers that a container's own class may have."""
    return slot, slot | _OWN_OPPORTUNISTIC


def minor(slot: int, shape: Shape, *, sharing: bool) -> int:
    """Return the class of its packets, the same on all links (a missing class is no limit); 0: none.

    Args:
        sharing: at least one link's rate is known.
    """
    if shape.ceil_bytes_per_s is not None or (sharing and promise(shape)):
        return own_minor(slot, shape)
    if not sharing:
        return 0
    return OPPORTUNISTIC if shape.opportunistic else RANKED[min(shape.rank, len(RANKED) - 1)]


def needs_tree(shape: Shape, link_bytes_per_s: int) -> bool:
    """Return whether a link needs our tree for it: not for a regular one of the first job without promise or limit."""
    if shape.ceil_bytes_per_s is not None:
        return True
    return bool(link_bytes_per_s and (shape.opportunistic or promise(shape) or shape.rank))
