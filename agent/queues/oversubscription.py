"""Grants beyond the slots, where the kernel schedules by job rank (see :class:`agent.queues.resource.Resource`)."""

from __future__ import annotations

from agent.queues.monotask import Monotask
from agent.queues.queues import MonotaskQueues
from agent.queues.resource import MOST_AHEAD


def reordered(queues: MonotaskQueues, now: float) -> list[Monotask]:
    """Grant the monotasks that need not wait any more after a change of job priorities."""
    return queues.grant_free(set(queues.resources()), now)


def most_commands(queues: MonotaskQueues) -> int:
    """Return how many CPU commands may run at once, even beyond the slots; 0 if commands keep to the slots."""
    cpu, *_ = queues.resources()
    return 0 if cpu.commands is None else MOST_AHEAD * cpu.slots
