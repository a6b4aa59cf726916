"""How long preempted containers take from the decision to their end: a histogram for operators (Prometheus buckets)."""

from __future__ import annotations

from bisect import bisect_left

#: Upper bounds in seconds, and then infinity.
BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Reaction:
    """``counts`` per bucket, not cumulative."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0
        self._decided: dict[str, float] = {}

    def decided(self, container: str, now: float) -> None:
        """It is to end."""
        self._decided.setdefault(container, now)

    def ended(self, container: str, now: float) -> None:
        """It has ended, for whatever reason; counted if that was decided here."""
        decided = self._decided.pop(container, None)
        if decided is not None:
            self.counts[bisect_left(BOUNDS_S, now - decided)] += 1
            self.sum_s += now - decided
