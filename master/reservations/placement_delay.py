"""PURE. The adapter's second part: delays until work gets its promised place, by the size of bundles (Rayon §5.2).

"The schedulers of YARN incur higher delays in scheduling large tasks than small ones. The adapter continuously monitors
this scheduling delay for all task sizes, and adjusts for it, by anticipating the allocations of jobs that require large
tasks." A delay lasts from the first round with ready tasks that lack part of their reservation's promise, to the round
after which they lack nothing, or none of them waits.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from master.core.guarantees import Promised

#: Longest learnt lead of a promise, in addition to the configured one (seconds).
MOST_S = 10.0
#: Half-life of a learnt delay (seconds).
HALF_LIFE_S = 3600.0
#: Smaller delays are within the length of a round (seconds).
LEAST_S = 0.1
#: Number of stored sizes, the latest ones.
MOST_SIZES = 64
#: Weight of a longer observation against the stored delay.
_WEIGHT = 0.5

#: The powers of two above a bundle's cores and bytes of memory.
Size = tuple[int, int]


def size(cores: float, memory_bytes: float) -> Size:
    """Return the size of one bundle."""
    return math.frexp(cores)[1], math.frexp(memory_bytes)[1]


def size_of(promised: Promised) -> Size:
    """Return the size of the mean of its bundles."""
    bundles = max(1, promised.bundles)
    return size(promised.cores / bundles, promised.memory_bytes / bundles)


@dataclass(frozen=True, slots=True)
class _Known:
    delay_s: float
    at: float


class PlacementDelays:
    """Learns from :meth:`saw`, once a round."""

    def __init__(self) -> None:
        self._known: dict[Size, _Known] = {}
        self._since: dict[str, float] = {}  # reservations with waiting tasks
        self._launched: set[str] = set()  # reservations whose present promise is no longer observed

    def saw(self, at: float, promised: Mapping[str, Promised], waiting: Collection[str]) -> None:
        """Observe a round at Unix time ``at``: the promises, and the reservations with ready tasks that lack part of
        theirs.

        Only the beginning of a promise is observed: later its jobs also wait for their own tasks.
        """
        for gone in [one for one in self._since if one not in promised]:
            del self._since[gone]
        self._launched.intersection_update(promised)
        for one in waiting:
            if one in promised and one not in self._launched:
                self._since.setdefault(one, at)
        for one in [one for one in self._since if one not in waiting]:
            self._launched.add(one)
            self._learn(size_of(promised[one]), at - self._since.pop(one), at)

    def delay_s(self, of: Size, at: float) -> float:
        """Return how long before its time a promise with bundles of a size should begin; 0: no delay is known."""
        known = self._known.get(of)
        if known is None:
            return 0.0
        delay_s = known.delay_s * 0.5 ** (max(0.0, at - known.at) / HALF_LIFE_S)
        return delay_s if delay_s >= LEAST_S else 0.0

    def all(self, at: float) -> dict[Size, float]:
        """Return size → delay in seconds, for sizes with a known delay."""
        return {one: delay_s for one in self._known if (delay_s := self.delay_s(one, at))}

    def _learn(self, of: Size, delay_s: float, at: float) -> None:
        before_s = self.delay_s(of, at)
        if delay_s <= before_s:
            return
        delay_s = min(MOST_S, before_s + _WEIGHT * (delay_s - before_s))
        self._known.pop(of, None)
        self._known[of] = _Known(delay_s, at)
        if len(self._known) > MOST_SIZES:
            del self._known[next(iter(self._known))]
