"""Queues of monotasks for tests: settings that do not matter are set, and grants are given by their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.queues import Monotask, MonotaskQueues
from penstock.model import Capacity, MonotaskSpec, ResourceKind
from penstock.wire.agent_api import Completion


def make_queues(
    cores: float = 1, *, disks: int = 1, links: int = 2, jobs: Mapping[str, float] | None = None, **settings: Any
) -> MonotaskQueues:
    """Return queues of so many slots, with ``jobs`` by their priorities; every monotask waits for a slot."""
    capacity = Capacity(cores=cores, memory_bytes=1, disk_slots=disks, network_slots=links)
    queues = MonotaskQueues(capacity, **{"network_bypass_bytes": 0, "rate_window_s": 10.0, **settings})
    for job, priority in (jobs or {}).items():
        queues.add_job(job, priority)
    return queues


def specs(*numbers: int, kind: ResourceKind = ResourceKind.CPU, size: int = 100) -> list[MonotaskSpec]:
    """Return monotasks of one stage."""
    return [MonotaskSpec(id=number, kind=kind, input_bytes=size, stage="s") for number in numbers]


def ids(granted: list[Monotask]) -> list[object]:
    """Return the numbers of monotasks."""
    return [monotask.id for monotask in granted]


def submit(queues: MonotaskQueues, job: str, *numbers: int, session: int = 1, now: float = 0.0) -> list[object]:
    """Submit monotasks of the CPU; return the numbers of those that are granted at once."""
    return ids(queues.submit(session, job, specs(*numbers), now))


def complete(queues: MonotaskQueues, job: str, number: int, now: float = 1.0) -> list[object]:
    """Complete a monotask; return the numbers of those that are granted then."""
    return ids(queues.complete(1, job, [Completion(id=number)], now))
