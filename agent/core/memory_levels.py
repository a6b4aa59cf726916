"""How much memory each elastic executor may use: never less than what cannot be taken from it.

``memory.high`` throttles and reclaims; without swap anonymous memory stays, and a process that only allocates stands
still at its level (docs/kernel.md). So a level is never below what reclaim cannot take, and rises for who is stalled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.core.reprovisioning import BOUNDED, STALLED
from agent.core.snapshot import ContainerUse

#: Above what cannot be reclaimed: what is allocated until the next sample.
_MARGIN, _MARGIN_BYTES = 0.1, 16 << 20


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one executor: its use (None: no sample has seen it), what its plan has, and what it needs beyond that."""

    use: ContainerUse | None
    planned_bytes: float
    raised_bytes: float

    def tiers(self, capacity_bytes: float) -> tuple[float, float, float, float]:
        """What it wants, the most urgent first: what cannot be taken from it, a margin above that, its plan, more."""
        pinned = unreclaimable_bytes(self.use) if self.use is not None else 0.0
        margin = with_margin(pinned) if self.use is not None else 0.0
        wants = (pinned, margin, self.planned_bytes, self.raised_bytes)
        pinned, margin, planned, raised = (min(size, capacity_bytes) for size in wants)
        return pinned, margin, planned, raised


def unreclaimable_bytes(use: ContainerUse) -> float:
    """What reclaim could not take without ending anything: the working set less its page cache."""
    return float(max(0, use.memory_bytes - use.memory_cache_bytes))


def with_margin(size_bytes: float) -> float:
    """What a level is at least for this much."""
    return size_bytes * (1 + _MARGIN) + _MARGIN_BYTES


def raised_bytes(use: ContainerUse, level_bytes: float | None, raised: float) -> float:
    """What a container wants beyond its plan, because its level stalls it; 0: nothing. ``raised``: what it wanted.

    It keeps what it was given for as long as it uses it.
    """
    wanted = with_margin(use.memory_bytes)
    if level_bytes is None:
        return raised
    if use.memory_stalled > STALLED:
        return max(raised, wanted, with_margin(level_bytes))
    if use.memory_bytes >= BOUNDED * level_bytes:
        return max(raised, wanted)
    return raised if wanted > BOUNDED * raised else min(raised, wanted)


def levels(room_bytes: float, wants: Sequence[Sequence[float]]) -> list[float]:
    """Tier by tier, as far as there is room: who wants more in a tier than it has by then gets it, or all of them the
    same part of it. The first tier is given in any case.

    ``wants`` is executors × tiers, in bytes, and so is what is given, by executor.
    """
    given = [tiers[0] for tiers in wants]
    left = max(0.0, room_bytes - sum(given))
    for tier in range(1, max(map(len, wants), default=0)):
        more = [max(0.0, tiers[tier] - has) for tiers, has in zip(wants, given, strict=True)]
        total = sum(more)
        part = min(1.0, left / total) if total else 0.0
        given = [has + part * extra for has, extra in zip(given, more, strict=True)]
        left -= part * total
    return given
