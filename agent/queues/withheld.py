"""CPU slots that are not granted, as promises hold their cores (see :class:`agent.queues.resource.Resource`)."""

from __future__ import annotations

from agent.queues.monotask import Monotask
from agent.queues.queues import MonotaskQueues
from penstock.model import ResourceKind


def withhold(queues: MonotaskQueues, slots: int, now: float) -> list[Monotask]:
    """Withhold so many CPU slots from now on; return what is granted where there are more of them to grant."""
    cpu, *_ = queues.resources()
    if slots != cpu.withheld:
        cpu.withhold(slots)
    return queues.grant_free({cpu}, now)


def asks_cpu(queues: MonotaskQueues, session: int) -> bool:
    """Return whether a connection's monotasks hold CPU slots, or wait for some."""
    live = (monotask for job in queues.jobs() for monotask in job.live.get(session, {}).values())
    return any(monotask.kind is ResourceKind.CPU for monotask in live)
