"""Which application arrives when."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Arrival:
    """``number`` distinguishes runs of one application; ``at_s`` counts from the beginning of the mix."""

    application: str
    number: int
    at_s: float


def arrivals(applications: Sequence[str], *, each: int, interval_s: float, seed: int) -> list[Arrival]:
    """Each application so many times, in random order, as a Poisson process (Elasecutor §V.A.1); the first at once."""
    rng = random.Random(seed)
    order = [(name, number) for name in applications for number in range(each)]
    rng.shuffle(order)
    at_s = 0.0
    found = []
    for name, number in order:
        found.append(Arrival(name, number, at_s))
        at_s += rng.expovariate(1 / interval_s)
    return found
