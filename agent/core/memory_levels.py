"""How much memory each elastic executor may use: never less than its unreclaimable memory.

``memory.high`` throttles and reclaims; without swap anonymous memory stays, and a process that only allocates stops at
this level (docs/kernel.md). So a level is never below the unreclaimable memory, and rises for a stalled executor.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.core.reprovisioning import BOUNDED, STALLED
from agent.core.snapshot import ContainerUse

#: Margin above unreclaimable memory, for allocations until the next sample.
_MARGIN, _MARGIN_BYTES = 0.1, 16 << 20


def tiers(use: ContainerUse | None, planned_bytes: float, raised: float, capacity_bytes: float) -> list[float]:
    """Return one executor's demands, most urgent first: unreclaimable memory, a margin above it, its plan, more.

    ``use`` None: it has not been sampled yet. ``raised``: its demand beyond its plan (:func:`raised_bytes`).
    """
    pinned = float(use.memory_unreclaimable_bytes) if use is not None else 0.0
    margin = with_margin(pinned) if use is not None else 0.0
    return [min(size, capacity_bytes) for size in (pinned, margin, planned_bytes, raised)]


def with_margin(size_bytes: float) -> float:
    """Return the lowest level for this much unreclaimable memory."""
    return size_bytes * (1 + _MARGIN) + _MARGIN_BYTES


def raised_bytes(use: ContainerUse, level_bytes: float | None, raised: float) -> float:
    """Return a container's demand beyond its plan when its level stalls it; 0: none. ``raised``: its former demand.

    It keeps raised memory for as long as it uses it.
    """
    wanted = with_margin(use.memory_bytes)
    if level_bytes is None:
        return raised
    held = use.memory_cache_bytes + use.memory_unreclaimable_bytes
    if use.memory_stalled > STALLED and held >= BOUNDED * level_bytes:  # below, a former level makes it wait still
        return max(raised, wanted, with_margin(level_bytes))
    if use.memory_bytes >= BOUNDED * level_bytes:
        return max(raised, wanted)
    return raised if wanted > BOUNDED * raised else min(raised, wanted)


def levels(room_bytes: float, wants: Sequence[Sequence[float]]) -> list[float]:
    """Fill the executors' demands tier by tier, as far as there is room; if a tier exceeds it, all get the same
    fraction of their missing amounts. The first tier is always granted.

    ``wants`` is executors × tiers, in bytes; the result is bytes per executor.
    """
    given = [demands[0] for demands in wants]
    left = max(0.0, room_bytes - sum(given))
    for tier in range(1, max(map(len, wants), default=0)):
        more = [max(0.0, demands[tier] - has) for demands, has in zip(wants, given, strict=True)]
        total = sum(more)
        part = min(1.0, left / total) if total else 0.0
        given = [has + part * extra for has, extra in zip(given, more, strict=True)]
        left -= part * total
    return given
