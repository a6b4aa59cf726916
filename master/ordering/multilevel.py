"""The multilevel queue of LAS_MQ (§3.1, §3.4–3.6): thresholds, and queues' shares of a cluster, independent of jobs."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.model.units import counted

#: The smallest weight; smaller values would underflow.
_LEAST = 1e-300


@dataclass(frozen=True)
class Multilevel:
    """``queues`` queues, numbered from 0; a job is in the first one whose threshold is at least its service.

    Service is in container-seconds. The threshold of queue 0 is ``first_threshold``, each later one ``step`` times the
    one before (α_{i+1} = p · α_i, §3.6); the last queue has none.

    ``weights`` divide the cluster among the queues that have jobs. The paper asks for weights ("to avoid starvation in
    lower priority queues", §3.1) and gives no values. By default a queue weighs ``step`` times as much as the next one,
    in inverse proportion to the sizes of their jobs. Then the first queue with jobs has at least 1 − 1 ÷ step of the
    cluster, however many others have jobs, and each of them still progresses. For the effect of other weights on the
    paper's workloads see docs/benchmarks/results.md (las_mq/weights).
    """

    queues: int = 10
    first_threshold: float = 100.0
    step: float = 10.0
    weights: tuple[float, ...] = ()
    _thresholds: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises: ValueError: a value is invalid; the message names it."""
        if self.queues < 1:
            raise ValueError(f"queues: {self.queues} is below 1")
        if not (math.isfinite(self.first_threshold) and self.first_threshold > 0):
            raise ValueError(f"first_threshold: {self.first_threshold:g} is not above 0 container-seconds")
        if not (math.isfinite(self.step) and self.step > 1):
            raise ValueError(f"step: {self.step:g} is not above 1: each threshold is the last one times the step")
        if not self.weights:
            object.__setattr__(self, "weights", tuple(max(self.step**-queue, _LEAST) for queue in range(self.queues)))
        if len(self.weights) != self.queues:
            raise ValueError(f"weights: {len(self.weights)} are given for {counted(self.queues, 'queue')}")
        if not all(math.isfinite(weight) and weight > 0 for weight in self.weights):
            raise ValueError("weights: each is to be above 0, or its queue starves")
        try:
            thresholds = tuple(self.first_threshold * self.step**queue for queue in range(self.queues - 1))
        except OverflowError:
            raise ValueError(
                f"step: {self.step:g} ** {counted(self.queues, 'queue')} is no number; set either lower"
            ) from None
        object.__setattr__(self, "_thresholds", thresholds)

    def queue_of(self, service: float) -> int:
        """Return the queue for a job with this service (Algorithm 1: it leaves a queue when j_m > α_i)."""
        return bisect_left(self._thresholds, service)

    def upper(self, queue: int) -> float:
        """Return the threshold of a queue in container-seconds: infinite for the last."""
        return self._thresholds[queue] if queue < self.queues - 1 else math.inf

    def shares(self, busy: Sequence[int]) -> dict[int, float]:
        """Return the shares of the queues that have jobs: fractions with sum 1, so nothing stays unused (§3.5)."""
        queues = sorted(set(busy))
        total = sum(self.weights[queue] for queue in queues)
        return {queue: self.weights[queue] / total for queue in queues}
