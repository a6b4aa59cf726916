"""How long monotasks waited for their slot: a histogram for operators (Prometheus buckets)."""

from __future__ import annotations

from bisect import bisect_left

from penstock.documents import Histogram

BOUNDS_S = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0)


class WaitHistogram:
    """A histogram of waits. ``granted`` counts the grants made: at once, in turn, or within a job under a lease.

    Not counted, since no monotask waited for them here: slots recounted after a restart of the agent, the slot of a
    promoted command (which is already running), and monotasks that run without a slot or beside the slots.

    Waits in the first bucket cost no search: their count is ``granted`` minus all other buckets.
    """

    __slots__ = ("counts", "granted", "sum_s")

    def __init__(self) -> None:
        self.granted = 0
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def waited(self, wait_s: float) -> None:
        """Count a grant after a wait."""
        self.granted += 1
        self.sum_s += wait_s
        if wait_s > BOUNDS_S[0]:
            self.counts[bisect_left(BOUNDS_S, wait_s)] += 1

    def document(self) -> Histogram:
        """Return the histogram for the status document."""
        first = self.granted - sum(self.counts)
        return Histogram(bounds_s=BOUNDS_S, counts=[first, *self.counts[1:]], sum_s=self.sum_s)
