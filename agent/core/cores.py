"""Accounting of a node's cores: promised cores, the idle ones among them that are lent, and the rest for CPU slots.

Cores that were promised to containers, including executors, are not granted as CPU slots too. The part of a promise
that the container did not use by the last sample is lent: it becomes slots. The container gets its cores back at once,
because its ``cpu.weight`` is above that of all work without a promise (agent/core/ranks.py); the next sample ends the
loan. A container that waits for processors (PSI) uses less because of that: the fraction of time that it waits is a
fraction of its promise that is not idle. Nothing is lent of a container whose use is not known yet (UBIS §IV.B).

A framework inside a promised container computes in the slots that it is granted. While it asks for CPU slots, its
container's cores count as these slots only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.core import events as e
from agent.core.records import ContainerRecord, ContainerState
from agent.core.session import Session
from agent.core.snapshot import ContainerUse, Snapshot
from agent.queues import MonotaskQueues
from agent.queues.withheld import asks_cpu
from penstock.wire import agent_methods as m

#: Events and calls after which other cores may be promised or lent.
MAY_MOVE_CORES: frozenset[object] = frozenset(
    {
        m.LAUNCH, e.AdoptRequested, e.Decided, e.ContainerExited, e.ContainerNotStarted, e.Sampled, e.Woken,
        e.FollowRequested, e.SessionClosed, e.Recovered,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CoreAccount:
    """``lent_cores`` are those of the ``promised_cores`` that were idle in the last sample: they become slots."""

    promised_cores: float
    lent_cores: float


class MeasuredUses:
    """The last sample's measurements of each container that the previous sample included, too.

    A container's first sample has no rate, or a rate over only a part of the sampling interval.
    """

    def __init__(self) -> None:
        self.by_container: dict[str, ContainerUse] = {}
        self._seen: frozenset[str] = frozenset()

    def sampled(self, snapshot: Snapshot) -> None:
        """Store a sample."""
        self.by_container = {name: use for name, use in snapshot.containers.items() if name in self._seen}
        self._seen = frozenset(snapshot.containers)


def account(
    live: Mapping[str, ContainerRecord],
    sessions: Iterable[Session],
    queues: MonotaskQueues,
    uses: Mapping[str, ContainerUse],
) -> CoreAccount:
    """Sum the promised and lent cores of the live containers.

    A container whose process, by one of ``sessions``, asks for CPU slots computes in the slots that it is granted.
    """
    in_slots = {
        record.container
        for session in sessions
        if (record := live.get(session.container)) is not None
        if record.promised_cores and asks_cpu(queues, session.session)
    }
    promised_cores = lent_cores = 0.0
    for record in live.values():
        if record.opportunistic or record.state is ContainerState.ENDED or record.container in in_slots:
            continue
        cores = record.promised_cores
        promised_cores += cores
        use = uses.get(record.container)
        if use is not None:
            waits = max(0.0, use.cpu_stalled - use.cpu_throttled)  # waits for processors, not for its own cpu.max
            lent_cores += max(0.0, cores * (1.0 - waits) - use.cpu_cores)
    return CoreAccount(promised_cores, lent_cores)
