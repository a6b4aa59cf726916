"""CPU slots that are not granted, because promises hold their cores (see :class:`agent.queues.resource.Resource`)."""

from __future__ import annotations

from agent.queues.monotask import Monotask
from agent.queues.queues import MonotaskQueues
from penstock.model import ResourceKind


def withhold(queues: MonotaskQueues, slots: int, now: float) -> list[Monotask]:
    """Withhold this many CPU slots from now on; return the grants made if fewer are withheld than before."""
    cpu, *_ = queues.resources()
    cpu.free += cpu.withheld - slots  # slots already held stay held
    cpu.withheld = slots
    return queues.grant_free({cpu}, now)


def asks_cpu(queues: MonotaskQueues, session: int) -> bool:
    """Return whether a connection's monotasks hold CPU slots or wait for one."""
    live = (monotask for job in queues.jobs() for monotask in job.live.get(session, {}).values())
    return any(monotask.kind is ResourceKind.CPU for monotask in live)
