"""The account of a node's cores: what is promised, what of it is idle and lent, and what is left for CPU slots.

Cores that were promised to containers, executors among them, are not granted as CPU slots as well. What a container
does not use of its promise, by the last sample, is lent: it makes slots. The container has its cores back at once, as
its ``cpu.weight`` is above that of all work without a promise (agent/core/ranks.py); the next sample ends the loan.
A container that waits for processors (PSI) uses less for want of them: the share of the time in which it waits is a
share of its promise that is not idle. Nothing is lent of a container whose use is not known yet (UBIS §IV.B).

A framework inside a promised container computes in the slots that it is granted. While it asks for CPU slots, its
container's cores count as these slots only.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.core import events as e
from agent.core.instructions import Instruction
from agent.core.records import ContainerRecord, ContainerState
from agent.core.snapshot import ContainerUse, Snapshot
from agent.queues.withheld import asks_cpu, withhold

if TYPE_CHECKING:
    from agent.core.node import Node

#: After these other cores may be promised, or lent.
MAY_MOVE_CORES = frozenset(
    {
        e.LaunchRequested, e.AdoptRequested, e.Decided, e.ContainerExited, e.ContainerNotStarted, e.Sampled, e.Woken,
        e.FollowRequested, e.SessionClosed, e.Recovered,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CoreAccount:
    """``lent_cores`` are those of the ``promised_cores`` that the last sample found idle."""

    promised_cores: float
    lent_cores: float

    @property
    def kept_cores(self) -> float:
        """Cores for which no CPU slot is granted."""
        return self.promised_cores - self.lent_cores


class MeasuredUses:
    """What the last sample measured of each container that the sample before it has seen, too.

    The first sample of a container tells no rate, or one of a part of the time between two samples.
    """

    def __init__(self) -> None:
        self.by_container: dict[str, ContainerUse] = {}
        self._seen: frozenset[str] = frozenset()

    def sampled(self, snapshot: Snapshot) -> None:
        """Take over a sample."""
        self.by_container = {name: use for name, use in snapshot.containers.items() if name in self._seen}
        self._seen = frozenset(snapshot.containers)


def balance(
    containers: Iterable[ContainerRecord],
    uses: Mapping[str, ContainerUse],
    in_slots: Container[str] = (),
) -> CoreAccount:
    """Add up. The containers ``in_slots`` compute in the slots that they are granted."""
    promised_cores = lent_cores = 0.0
    for record in containers:
        if record.opportunistic or record.state is ContainerState.ENDED or record.container in in_slots:
            continue
        cores = record.promised_cores
        promised_cores += cores
        use = uses.get(record.container)
        if use is not None:
            waits = max(0.0, use.cpu_stalled - use.cpu_throttled)  # for processors, but not at its own cpu.max
            lent_cores += max(0.0, cores * (1.0 - waits) - use.cpu_cores)
    return CoreAccount(promised_cores, lent_cores)


def account(node: Node) -> CoreAccount:
    """Return the account of a node as it is now."""
    live = node.containers.live
    in_slots = {
        record.container
        for session in node.sessions.values()
        if (record := live.get(session.container)) is not None
        if record.promised_cores and asks_cpu(node.queues, session.session)
    }
    return balance(live.values(), node.measured_uses.by_container, in_slots)


def book(node: Node, now: float) -> list[Instruction]:
    """Withhold the slots whose cores are promised and used; grant those that are free again."""
    capacity = node.settings.capacity
    node.withheld_slots = capacity.cpu_slots - capacity.cpu_slots_beside(account(node).kept_cores)
    return node.granted(withhold(node.queues, node.withheld_slots, now), now)
