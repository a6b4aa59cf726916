"""How ranks become weights: ``cpu.weight``, and nice values where no cpu controller weighs containers. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from agent.core.confinement import WEIGHT_PER_CORE

#: The ratio between the weights of neighbours in rank; equal to twelve steps of nice (kernel/sched/core.c: 1.25 each).
STEP = 16
#: Steps of nice that equal a factor of :data:`STEP`, and the range of nice values used (sched(7): 1.25 for each step).
NICE_STEP, NICE_FIRST, NICE_LAST = 12, -10, 15
#: The nice value of opportunistic work. Where the kernel weighs sessions, SCHED_IDLE has no effect between them: then
#: this value is a factor of 2.4 below the last rank.
NICE_OPPORTUNISTIC = 19
#: The part of the unpromised cores' weight given to ranks: the kernel divides in slices, and no promise may miss one.
UNPROMISED_SHARE = 0.95
#: The minimum weight of ranked containers where every core is promised, as a part of the weight of all cores.
LEAST_SHARE = 0.02


def nice_of(rank: int, jobs: float) -> int:
    """Return the nice value of a job's processes where no cpu controller weighs its containers.

    The first of several jobs is raised by as much as the others are lowered, down to :data:`NICE_FIRST`: all together
    weigh as much as the same number of jobs under plain Linux, so that ranks do not change the share of other work on
    the host. For one of several tenants, ``jobs`` is the number of all jobs × the tenant's share.
    """
    if not jobs:
        return NICE_LAST
    first = max(NICE_FIRST, -round(math.log(jobs, 1.25)))
    return min(NICE_LAST, first + NICE_STEP * rank)


def unpromised_weight(cores: float, promised_cores: float) -> int:
    """Return the weight of all work without promised cores, on a node with this many promised cores."""
    unpromised = max(UNPROMISED_SHARE * (cores - promised_cores), LEAST_SHARE * cores)
    return round(WEIGHT_PER_CORE * unpromised)


def apportion(total: int, weights: Sequence[float]) -> list[int]:
    """Divide a weight among tenants in proportion to ``weights``; the sum of the parts is ``total``."""
    parts: list[int] = []
    up_to, of = 0.0, sum(weights) or 1.0
    for weight in weights:
        up_to += weight
        parts.append(round(total * min(1.0, up_to / of)) - sum(parts))
    return parts


def divide(total: int, counts: Iterable[int]) -> list[int]:
    """Divide a weight among jobs in the order of their ranks; ``counts`` has the number of containers of each.

    Neighbours differ by a factor of :data:`STEP` as long as each container weighs at least 1; the first gets the
    remainder of ``total``.
    """
    weights = []
    part, first = float(total), 0
    for count in counts:
        weights.append(max(count, round(part)))
        first = first or count
        part /= STEP
    if weights:
        weights[0] = max(first, total - sum(weights[1:]))
    return weights
