"""PURE. The adapter's other half: what it takes to find work its promised place, by the size of bundles (Rayon §5.2).

"The schedulers of YARN incur higher delays in scheduling large tasks than small ones. The adapter continuously monitors
this scheduling delay for all task sizes, and adjusts for it, by anticipating the allocations of jobs that require large
tasks." A delay is from the first round in which tasks are ready and lack what their reservation is promised, to the
round behind which they lack nothing, or none of them waits.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from master.core.plan import Promised

#: No promise is kept longer ahead of its time than this, beside what is configured (seconds).
MOST_S = 10.0
#: In so long half of what is known is forgotten (seconds).
HALF_LIFE_S = 3600.0
#: Less than this is the length of a round (seconds).
LEAST_S = 0.1
#: So many sizes are remembered, those that were seen last.
MOST_SIZES = 64
#: An observation moves what is known so far towards itself, if it is the longer one.
_WEIGHT = 0.5

#: Bundles of a size have cores and bytes of memory below the same powers of two.
Size = tuple[int, int]


def size(cores: float, memory_bytes: float) -> Size:
    """Of one bundle."""
    return math.frexp(cores)[1], math.frexp(memory_bytes)[1]


def size_of(promised: Promised) -> Size:
    """Of the mean of its bundles."""
    bundles = max(1, promised.bundles)
    return size(promised.cores / bundles, promised.memory_bytes / bundles)


@dataclass(frozen=True, slots=True)
class _Known:
    delay_s: float
    at: float


class LaunchDelays:
    """Learns by :meth:`saw`, once a round."""

    def __init__(self) -> None:
        self._known: dict[Size, _Known] = {}
        self._since: dict[str, float] = {}  # reservations whose tasks wait
        self._launched: set[str] = set()  # those whose promise that holds now needs no more watching

    def saw(self, at: float, promised: Mapping[str, Promised], waiting: Collection[str]) -> None:
        """After a round at Unix time ``at``: what is promised, and who has ready tasks and lacks some of it.

        Only how a promise begins is learnt from: later its jobs wait for their own tasks, too.
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
        """How long before its time to begin with bundles of a size; 0: nothing is known against the last moment."""
        known = self._known.get(of)
        if known is None:
            return 0.0
        delay_s = known.delay_s * 0.5 ** (max(0.0, at - known.at) / HALF_LIFE_S)
        return delay_s if delay_s >= LEAST_S else 0.0

    def all(self, at: float) -> dict[Size, float]:
        """Size → delay in seconds, of those for which one is known."""
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
