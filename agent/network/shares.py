"""Which HTB class a container's packets go to, and what that class may do: pure.

On a link whose rate is known one class stands for the link. Beneath it each container that has a promise or a limit of
its own has a class of its own; all other regular containers share one, all other opportunistic ones another, so that
the unlimited majority costs no call. HTB serves what is within its rate first and lends the rest of the link by
priority: 0 for regular containers, in proportion to their promises, 7 for opportunistic ones, who get what is left.
Of those that share a class, the containers of the job that is the first by rank (agent/core/ranks.py) have priority 0
as well, those of the second 1, those of all others 2, in a class for each.

Where the link's rate is not known there is nothing to lend: a class of its own is a limit, and the rest is unmarked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

#: 10 kbit/s. Below, a single segment of 64 KB would take longer than the minute that HTB looks back.
MIN_RATE_BYTES_PER_S = 1250
#: Minor numbers; slots go up to 0x1fff. A container's class changes its number with its priority, because HTB keeps
#: a class at its old priority until its queue has once been empty. The low four bits are 0 because without our root
#: some qdiscs read them as a band.
REGULAR, OPPORTUNISTIC, LINK = 0x4000, 0x4010, 0x4020
#: By rank, with the priority that is its place here; the last is that of all further ranks.
RANKED = (REGULAR, 0x4030, 0x4040)
_OWN_OPPORTUNISTIC = 0x2000
#: What those who share a class are sure of, together, and what each of those without promise is that have their own, or
#: the jobs that are not the first: as parts of the link. What has been sent must be paid off at this rate before a
#: promotion shows, so it is not tiny.
_SHARED_PART, _OWN_PART = 100, 500
_LAST_PRIORITY = 7
_LARGEST_QUANTUM_BYTES, _SMALLEST_QUANTUM_BYTES = 60_000, 1514


@dataclass(frozen=True, slots=True)
class Shape:
    """What one container may do on the network, in bytes per second on the wire."""

    rate_bytes_per_s: int = 0
    """Promised egress; 0: none. An opportunistic container has none."""
    ceil_bytes_per_s: int | None = None
    """Limit of egress; None: the link."""
    ingress_bytes_per_s: int | None = None
    opportunistic: bool = False
    rank: int = 0
    """Of its job, 0 for the first and for those that have none."""


@dataclass(frozen=True, slots=True)
class HtbClass:
    """One class of ours; ``minor`` is the low half of its id, ``parent`` that of the class above, 0: the root."""

    minor: int
    parent: int
    rate_bytes_per_s: int
    ceil_bytes_per_s: int
    priority: int = 0

    def parameters(self) -> dict[str, int]:
        """HTB's own, for pyroute2.

        The quantum shares out what can be lent in proportion to the rates; without one the kernel warns in its log.
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
        """The same for what still waits in it, while new packets go elsewhere."""
        return replace(self, rate_bytes_per_s=bytes_per_s, ceil_bytes_per_s=bytes_per_s)


def _burst_bytes(bytes_per_s: int) -> int:
    """40 ms of the rate, but from 100 Mbit/s on half a megabyte, and from 500 Mbit/s on 8 ms; at least ten packets.

    What is not sent while the processor is away for longer than this is lost to the container. Below 4 ms accuracy
    goes above 100 Mbit/s, below ten packets at low rates (docs/kernel-network.md).
    """
    return max(16_000, bytes_per_s // 125, min(500_000, bytes_per_s // 25))


def common(link_bytes_per_s: int) -> list[HtbClass]:
    """The classes of a link that are there before any container's, parents first; none if its rate is unknown (0)."""
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
    """The container's own class on a link, if it needs one there.

    Args:
        link_bytes_per_s: 0: not known.
        room_bytes_per_s: what can still be promised on the link.
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
    """What HTB is to keep for the container: not more than it may send."""
    if shape.opportunistic:
        return 0
    return min(shape.rate_bytes_per_s, shape.ceil_bytes_per_s or shape.rate_bytes_per_s)


def own_minor(slot: int, shape: Shape) -> int:
    """The number of a container's own class."""
    return slot | (_OWN_OPPORTUNISTIC if shape.opportunistic else 0)


def own_minors(slot: int) -> tuple[int, int]:
    """Both numbers that it may have."""
    return slot, slot | _OWN_OPPORTUNISTIC


def minor(slot: int, shape: Shape, *, sharing: bool) -> int:
    """Where its packets go, on all links alike (where there is no such class they are let through); 0: nowhere.

    Args:
        sharing: the rate of some link is known.
    """
    if shape.ceil_bytes_per_s is not None or (sharing and promise(shape)):
        return own_minor(slot, shape)
    if not sharing:
        return 0
    return OPPORTUNISTIC if shape.opportunistic else RANKED[min(shape.rank, len(RANKED) - 1)]


def needs_tree(shape: Shape, link_bytes_per_s: int) -> bool:
    """Whether a link needs our tree for it: not for regular containers neither promised nor denied anything, if they
    are of the first job."""
    if shape.ceil_bytes_per_s is not None:
        return True
    return bool(link_bytes_per_s and (shape.opportunistic or promise(shape) or shape.rank))
