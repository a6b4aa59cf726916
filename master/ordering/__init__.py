"""PURE. In which order jobs are served (Ursa §4.2.2, "Job ordering")."""

from __future__ import annotations

from collections.abc import Callable

from master.ordering import ejf, fifo

#: (placement score of a stage, elapsed time T of its job in seconds, W) → sort key; the largest is placed first.
StageKey = Callable[[float, float, float], tuple[float, ...]]

ORDERINGS: dict[str, StageKey] = {"ejf": ejf.stage_key, "fifo": fifo.stage_key}


def queue_priority(submitted_at: float) -> float:
    """The job's priority in the agents' queues, larger first: the earlier job goes first under EJF as under FIFO.

    ``submitted_at`` is Unix time. The number never changes while the job lives, so each agent is told once.
    """
    return -submitted_at


__all__ = ["ORDERINGS", "StageKey", "queue_priority"]
