"""The multilevel queue of LAS_MQ (§3.1, §3.4–3.6): thresholds, and how queues share a cluster. It knows no jobs."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

#: A weight that is still one.
_LEAST = 1e-300


@dataclass(frozen=True)
class Multilevel:
    """``queues`` queues, numbered from 0; a job is in the first whose threshold its service does not exceed.

    Service is in container-seconds. The threshold of queue 0 is ``first_threshold``, each other one ``step`` times that
    of the queue before (α_{i+1} = p · α_i, §3.6); the last queue has none.

    ``weights`` divide the cluster among the queues that have jobs. The paper asks for weights ("to avoid starvation in
    lower priority queues", §3.1) and gives none. By default a queue weighs ``step`` times what the next one does, as
    much less as its jobs are larger: then the first queue with jobs has at least 1 − 1 ÷ step of the cluster, however
    many others have jobs, and each of them still moves. What other choices do to the paper's workloads is in
    docs/results.md (las_mq/weights).
    """

    queues: int = 10
    first_threshold: float = 100.0
    step: float = 10.0
    weights: tuple[float, ...] = ()
    _thresholds: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises: ValueError: a number that makes no queue; the message names it."""
        if self.queues < 1:
            raise ValueError(f"queues: {self.queues} is below 1")
        if not (math.isfinite(self.first_threshold) and self.first_threshold > 0):
            raise ValueError(f"first_threshold: {self.first_threshold:g} is not above 0 container-seconds")
        if not (math.isfinite(self.step) and self.step > 1):
            raise ValueError(f"step: {self.step:g} is not above 1: each threshold is the last one times the step")
        if not self.weights:
            object.__setattr__(self, "weights", tuple(max(self.step**-queue, _LEAST) for queue in range(self.queues)))
        if len(self.weights) != self.queues:
            raise ValueError(f"weights: {len(self.weights)} are given for {self.queues} queues")
        if not all(math.isfinite(weight) and weight > 0 for weight in self.weights):
            raise ValueError("weights: each is to be above 0, or its queue starves")
        try:
            thresholds = tuple(self.first_threshold * self.step**queue for queue in range(self.queues - 1))
        except OverflowError:
            raise ValueError(f"step: {self.step:g} ** {self.queues} queues is no number; set either lower") from None
        object.__setattr__(self, "_thresholds", thresholds)

    def queue_of(self, service: float) -> int:
        """The queue of a job that has received so much (Algorithm 1: it leaves a queue when j_m > α_i)."""
        return bisect_left(self._thresholds, service)

    def upper(self, queue: int) -> float:
        """The threshold of a queue in container-seconds: infinite for the last."""
        return self._thresholds[queue] if queue < self.queues - 1 else math.inf

    def shares(self, busy: Sequence[int]) -> dict[int, float]:
        """Fractions of the cluster for the queues that have jobs: together 1, as nothing is left unused (§3.5)."""
        queues = sorted(set(busy))
        total = sum(self.weights[queue] for queue in queues)
        return {queue: self.weights[queue] / total for queue in queues}
