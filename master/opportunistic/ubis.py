"""UBIS, Algorithm 1, lines 21–29: opportunistic containers while T_alloc × capacity exceeds utilization.

The paper fills one node at a time, on its heartbeat. A round sees all nodes, so each task goes to the node with the
largest fraction of slack left, under the same bound per node. The paper covers CPU and memory; disk and network, which
it leaves to future work (§VII), are treated like CPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from master.placement.workers import COLUMN, COLUMN_NAMES, Floats, Mask
from penstock.model import ResourceKind
from penstock.model.resource_vector import SlotVector
from penstock.model.units import counted, format_bytes

#: Tolerance for sums of fractions of cores.
_EPSILON = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class SlackDemand:
    """A task's demand on slack.

    ``takes`` counts as used until a report includes it. Of it, ``fits`` must be left: memory, and the stated cores. For
    other resources any slack suffices, because CPU, disk and network can be shared for a while (UBIS §IV.C); each
    resource in ``needs`` must have some. ``slot`` is the kind of slot that the task would wait for: one must be idle.
    """

    takes: SlotVector
    fits: SlotVector
    needs: tuple[bool, bool, bool, bool] = (True, True, True, True)
    slot: ResourceKind | None = None
    allowed: Mask | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """The worker of a task, with the rule and the numbers behind the choice."""

    worker: int
    why: str


@dataclass(slots=True, eq=False)
class Slack:
    """Unused resources of n workers; :meth:`give` consumes them.

    ``left`` (n × 4, as in a SlotVector) is T_alloc × capacity − utilization, in which all tasks launched since the last
    heartbeat count in full ("the scheduler assumes the newly allocated containers will utilize all allocated
    resources"). ``idle`` (n × 3) are free slots. ``queue`` (n) is the number of commands that may still wait on each
    node. ``room`` (n) is the number of tasks each node may still hold on slack after a preemption; None: no node has a
    limit.
    """

    t_alloc: Floats
    left: Floats
    capacity: Floats
    idle: Floats
    queue: Floats
    room: Floats | None = None
    # slack only shrinks, so a demand without a worker finds none later
    _hopeless: set[object] = field(default_factory=set)

    def give(self, demand: SlackDemand) -> Given | None:
        """Place a task where the largest fraction of slack is left; return None where it fits nowhere."""
        shape = (demand.takes, demand.fits, demand.needs, demand.slot) if demand.allowed is None else None
        if not len(self.left) or shape in self._hopeless:
            return None
        worker = self._roomiest(np.logical_or.reduce(list(self._bars(demand).values())))
        if worker is None:
            if shape is not None:
                self._hopeless.add(shape)
            return None
        given = Given(worker, self._why(worker))
        self._take(worker, demand)
        if demand.slot is not None:
            self.idle[worker, COLUMN[demand.slot]] -= 1
        return given

    def may_take(self, demand: SlackDemand, *, command: bool) -> bool:
        """Return whether a worker has slack for the task, or a place for a command in its queue."""
        if command and not self._bars_of_queues(demand).all():
            return True
        return bool(len(self.left)) and not np.logical_or.reduce(list(self._bars(demand).values())).all()

    def _bars_of_queues(self, demand: SlackDemand) -> Mask:
        """Return which workers have no place in their queues for the task, or could never hold it."""
        barred: Mask = (self.queue < 1) | (
            self.capacity * self.t_alloc[:, None] < np.array(demand.fits) - _EPSILON
        ).any(axis=1)
        if demand.allowed is not None:
            barred |= ~demand.allowed
        if self.room is not None:
            barred |= self.room < 1
        return barred

    def queue_up(self, demand: SlackDemand) -> Given | None:
        """Let a command without slack wait on the node that lacks the least; return None where no queue has room."""
        if not (self.queue >= 1).any():
            return None
        worker = self._roomiest(self._bars_of_queues(demand))
        if worker is None:
            return None
        given = Given(worker, f"ubis: no slack; one of {counted(self.queue[worker], 'place')} in the queue for it")
        self._take(worker, demand)
        self.queue[worker] -= 1
        return given

    def lacks(self, demand: SlackDemand) -> dict[str, int]:
        """Return the reasons that bar a task, and from how many workers each."""
        return {reason: int(mask.sum()) for reason, mask in self._bars(demand).items() if mask.any()}

    def _roomiest(self, barred: Mask) -> int | None:
        """Return the worker with the largest fraction of slack left; None: all are barred."""
        share = np.where(barred, -np.inf, (self.left / self.capacity).min(axis=1))
        worker = int(share.argmax())
        return None if share[worker] == -np.inf else worker

    def _take(self, worker: int, demand: SlackDemand) -> None:
        """Subtract a placed task from the worker."""
        self.left[worker] -= demand.takes
        if self.room is not None:
            self.room[worker] -= 1

    def _bars(self, demand: SlackDemand) -> dict[str, Mask]:
        """Return, for each reason, the workers that it bars."""
        short = (self.left < np.array(demand.fits) - _EPSILON) | ((self.left <= 0) & np.array(demand.needs))
        bars = {name: short[:, column] for column, name in enumerate(COLUMN_NAMES)}
        if demand.slot is not None:
            bars[f"a free {demand.slot} slot"] = self.idle[:, COLUMN[demand.slot]] < 1
        if demand.allowed is not None:
            bars["permission for it (its nodes, an earlier refusal or a preemption there)"] = ~demand.allowed
        if self.room is not None:
            bars["room for more on slack since a preemption there"] = self.room < 1
        return bars

    def _why(self, worker: int) -> str:
        cores, disk, network, memory = self.left[worker].tolist()
        return (
            f"ubis: slack {counted(cores, 'core', digits=2)}, {counted(disk, 'disk slot', digits=2)}, "
            f"{counted(network, 'network slot', digits=2)} and {format_bytes(memory)} = "
            f"T_alloc {self.t_alloc[worker]:g} × capacity − utilization − launched since"
        )


def why_not(demand: SlackDemand, slack: Slack) -> str:
    """Describe the resources a task lacks, for the status page."""
    if not len(slack.left):
        return "no node is connected"
    said = [f"{count} {'lacks' if count == 1 else 'lack'} {reason}" for reason, count in slack.lacks(demand).items()]
    return f"of {counted(len(slack.left), 'node')} {', '.join(said) or 'none had slack when it was its turn'}"
