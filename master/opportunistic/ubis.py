"""UBIS, Algorithm 1, lines 21–29: opportunistic containers while T_alloc × capacity exceeds utilization.

The paper fills one node at a time, when its heartbeat comes. A round sees all nodes, so each task goes to the node that
has the largest share of slack left; what a node is given is bounded just the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from master.placement.workers import COLUMN, Floats, Mask
from penstock.model import ResourceKind
from penstock.model.units import format_bytes


@dataclass(slots=True)
class Slack:
    """Unused resources of n workers; :func:`allocate` consumes them.

    ``cores`` and ``memory`` (n) are T_alloc × capacity − utilization, in which everything that was launched since the
    last heartbeat counts in full ("the scheduler assumes the newly allocated containers will utilize all allocated
    resources"). ``idle`` (n × 3) are free slots: a task that would only wait for a slot does not use any slack.
    """

    t_alloc: Floats
    cores: Floats
    memory: Floats
    core_capacity: Floats
    memory_capacity: Floats
    idle: Floats

    def share(self) -> Floats:
        """The scarcer of CPU and memory, as a fraction of the capacity (n)."""
        return np.minimum(self.cores / self.core_capacity, self.memory / self.memory_capacity)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What an opportunistic task asks. ``cores`` is 0 where it does not say; ``slot`` is the kind that it waits for."""

    job: str
    task: str
    memory_bytes: int
    cores: float
    slot: ResourceKind | None
    allowed: Mask | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """A task and its worker, with the rule and the numbers that led to it."""

    asked: Asked
    worker: int
    why: str


def allocate(slack: Slack, tasks: Iterable[Asked]) -> list[Given]:
    """Serve the tasks in their order, each where the largest share of slack is left."""
    given: list[Given] = []
    if not len(slack.cores):
        return given
    for asked in tasks:
        # CPU can be shared for a while (UBIS §IV.C), so who does not say how much he wants may start on any slack.
        barred = (slack.memory < asked.memory_bytes) | (slack.memory <= 0)
        barred |= (slack.cores < asked.cores - 1e-9) | (slack.cores <= 0)
        if asked.slot is not None:
            barred |= slack.idle[:, COLUMN[asked.slot]] < 1
        if asked.allowed is not None:
            barred |= ~asked.allowed
        share = slack.share()
        share[barred] = -np.inf
        worker = int(share.argmax())
        if share[worker] == -np.inf:
            continue
        given.append(Given(asked, worker, _why(slack, worker)))
        slack.memory[worker] -= asked.memory_bytes
        slack.cores[worker] -= max(asked.cores, 1.0 if asked.slot is ResourceKind.CPU else 0.0)
        if asked.slot is not None:
            slack.idle[worker, COLUMN[asked.slot]] -= 1
    return given


def _why(slack: Slack, worker: int) -> str:
    return (
        f"ubis: slack {slack.cores[worker]:.2g} cores and {format_bytes(slack.memory[worker])} "
        f"= T_alloc {slack.t_alloc[worker]:g} × capacity − utilization − launched since"
    )
