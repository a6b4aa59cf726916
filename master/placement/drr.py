"""Dominant remaining resource (Elasecutor §III.B.2a): the fraction of a machine that would stay idle.

Arrays: ``available`` is resources × slots from now on; ``horizon`` counts slots.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

#: Maps R/C per resource (… × resources) to one number per machine (…).
Metric = Callable[[Floats], Floats]


def drr(fractions: Floats) -> Floats:
    """Return the largest fraction: if it is 10 %, every resource is used to at least 90 %."""
    largest: Floats = fractions.max(axis=-1)
    return largest


def trc(fractions: Floats) -> Floats:
    """Return the total remaining capacity, the sum, with which §V.F.4 compares DRR."""
    total: Floats = fractions.sum(axis=-1)
    return total


METRICS: dict[str, Metric] = {"drr": drr, "trc": trc}


def remaining_with(
    available: Floats, capacity: Floats, first_end: int, cumulative: Floats, lengths: Ints, candidates: Ints
) -> tuple[Floats, Ints]:
    """Return R(*, j, t) / C(*, j, t), the rest of each resource up to a horizon as a fraction of its capacity, with one
    of n candidates launched now, for each (n × resources), and each one's horizon (n).

    ``first_end`` is the end of the first running executor. ``candidates`` (n) selects from all demands; ``cumulative``
    (all × resources × slots + 1) is their sum up to a slot and ``lengths`` (all) their duration. The horizon includes
    the candidate: in Fig. 6, θ(1, j) is taken at 0.875 T, where executor 1 would end before the running ones.
    """
    horizon = np.minimum(lengths[candidates], first_end)
    left = np.zeros((available.shape[0], available.shape[1] + 1))
    np.cumsum(available, axis=1, out=left[:, 1:])
    taken = cumulative[candidates, :, horizon]
    fractions: Floats = (left[:, horizon].T - taken) / (capacity * horizon[:, None])
    return fractions, horizon
