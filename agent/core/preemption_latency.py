"""Time from the decision to preempt a container to its end: a histogram for operators (Prometheus buckets)."""

from __future__ import annotations

from bisect import bisect_left

#: Upper bounds in seconds, followed by infinity.
BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class PreemptionLatency:
    """A histogram; ``counts`` is per bucket, not cumulative."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0
        self._decided: dict[str, float] = {}

    def decided(self, container: str, now: float) -> None:
        """Record the decision to end a container."""
        self._decided.setdefault(container, now)

    def ended(self, container: str, now: float) -> None:
        """Record the end of a container, for any reason; counted if it had been decided here."""
        decided = self._decided.pop(container, None)
        if decided is not None:
            self.counts[bisect_left(BOUNDS_S, now - decided)] += 1
            self.sum_s += now - decided
