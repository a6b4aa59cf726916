"""MinFrag (Elasecutor, Algorithm 1): on a heartbeat, repeatedly launch the executor that leaves the least idle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from master.placement.drr import METRICS, Floats, Ints, remaining_with
from master.placement.executors import RESOURCES, TOLERANCE, Launch, Machines, WaitingExecutors, fitting
from master.placement.workers import Mask
from penstock.model.units import counted

#: Digits to which scores are compared: rounding must not decide against the executor that waits longer.
_DIGITS = 12


class MinFrag:
    """``metric``: ``drr``, or ``trc`` for the ablation of §V.F.4."""

    elastic = True
    by_stage = False

    def __init__(self, metric: str = "drr") -> None:
        self._metric_name = metric
        self._metric = METRICS[metric]
        self.reserves: Mask = np.ones(len(RESOURCES), dtype=np.bool_)

    def demand(self, profile: Floats) -> Floats:
        """Return the profile itself: the allocation is the predicted demand (§III.B.1a, Equation 2)."""
        return profile

    def heartbeat(self, machines: Machines, machine: int, pending: WaitingExecutors) -> list[Launch]:
        """Run Algorithm 1. Ties go to the executor that waits longest.

        While the machine fills, its free resources only shrink: an executor that does not fit is dropped for good, and
        a candidate is compared with the plan again only at its turn.
        """
        demands = pending.demands
        numbers, counts = pending.waiting()
        available = machines.available(machine)
        capacity = machines.capacity[machine]
        slack = TOLERANCE * capacity
        fits = fitting(demands, numbers, available, slack) if len(numbers) else np.zeros(0, dtype=np.bool_)
        if not fits.any():
            return []
        available = available.copy()
        first_end = machines.first_end(machine)
        left = np.flatnonzero(fits)
        numbers, counts = numbers[left], counts[left].copy()
        launches: list[Launch] = []
        taken = np.zeros(len(numbers), dtype=np.intp)
        while len(numbers):
            fractions, horizon = remaining_with(
                available, capacity, first_end, demands.cumulative, demands.lengths, numbers
            )
            scores = np.round(self._metric(fractions), _DIGITS)
            best = self._first_that_fits(scores, numbers, pending, available + slack[:, None])
            if best is None:
                break
            number = int(numbers[best])
            why = self._why(demands.names, fractions[best], float(scores[best]), int(horizon[best]))
            launches.append(Launch(pending.peek(number, int(taken[best])), number, machine, why))
            length = int(demands.lengths[number])
            available[:, :length] -= demands.of(number)
            first_end = min(first_end, length)
            taken[best] += 1
            scores[best] = np.inf if taken[best] == counts[best] else scores[best]
            kept = scores < np.inf
            numbers, counts, taken = numbers[kept], counts[kept], taken[kept]
        return launches

    @staticmethod
    def _first_that_fits(scores: Floats, numbers: Ints, pending: WaitingExecutors, room: Floats) -> int | None:
        """Return the least score that still fits; mark lower ones with infinity."""
        amounts = pending.demands.amounts
        while True:
            best = int(scores.argmin())
            if scores[best] == np.inf:
                return None
            if (amounts[numbers[best]] <= room).all():
                return best
            scores[best] = np.inf

    def _why(self, names: Sequence[str], fractions: Floats, score: float, horizon: int) -> str:
        each = " ".join(f"{name} {value:.3f}" for name, value in zip(names, fractions, strict=True))
        return f"minfrag: {self._metric_name.upper()} {score:.3f} = remaining over {counted(horizon, 'slot')}: {each}"
