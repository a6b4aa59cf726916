"""How long monotasks waited for their slot: a histogram for operators (Prometheus buckets)."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

BOUNDS_S = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0)


class Waits:
    """``granted`` counts the slots that the queue gave: at once, in turn, or passed on within a job.

    No grant, as nobody waited for it here: a slot that is only counted again after a restart of the agent (it was
    granted before), one that a promoted command is given (it runs already), what runs without a slot or beside them.

    Those in the first bucket cost no search for it: they are what is in no other one.
    """

    __slots__ = ("counts", "granted", "sum_s")

    def __init__(self) -> None:
        self.granted = 0
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def waited(self, wait_s: float) -> None:
        """One that waited was granted."""
        self.granted += 1
        self.sum_s += wait_s
        if wait_s > BOUNDS_S[0]:
            self.counts[bisect_left(BOUNDS_S, wait_s)] += 1

    def document(self) -> dict[str, Any]:
        """For the status: ``counts`` has one more than ``bounds_s``, for the rest."""
        first = self.granted - sum(self.counts)
        return {"bounds_s": BOUNDS_S, "counts": [first, *self.counts[1:]], "sum_s": self.sum_s}
