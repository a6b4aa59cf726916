"""Beyond the slots, where the kernel knows the order of jobs (see :class:`agent.queues.resource.Resource`)."""

from __future__ import annotations

from agent.queues.monotask import Monotask
from agent.queues.queues import MonotaskQueues
from agent.queues.resource import MOST_AHEAD


def reordered(queues: MonotaskQueues, now: float) -> list[Monotask]:
    """Grant what need not wait any more, as priorities have changed and its job stands further ahead."""
    return queues.grant_free(set(queues.resources()), now)


def most_commands(queues: MonotaskQueues) -> int:
    """Return how many commands of the CPU may run at once, some beyond the slots; 0: they keep to the slots."""
    cpu, *_ = queues.resources()
    return 0 if cpu.commands is None else MOST_AHEAD * cpu.slots
