"""What is asked of the gate for one thing that a Dask worker is about to do."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

from penstock.model.resources import ResourceKind


class LongRunning(Protocol):
    """What a monotask knows of its way through the pool (:class:`penstock.engines.dask.pool.Turn`)."""

    def long_running(self) -> None:
        """Give the slot back, as the task has left its worker's pool."""
        ...


@dataclass(slots=True, eq=False)
class DaskMonotask:
    """One Dask task before its grant. ``kind`` None: its author wants it ungated."""

    kind: ResourceKind | None = ResourceKind.CPU
    input_bytes: int = 0
    stage: str = ""
    learn: Callable[[int], None] | None = field(default=None, repr=False)
    """Wants to know how many bytes the task's thread read."""
    turn: LongRunning | None = field(default=None, repr=False)
    """Its way through the pool, once it is there."""
    withdraw: Callable[[], bool] | None = field(default=None, repr=False)
    """Takes it back while it is not granted; False if it is too late for that."""
    withdrawn: bool = False
    """Dask cancelled it before it was granted."""


#: The task that the current context is executing: how the pool learns what Dask's executor interface does not say.
EXECUTING: ContextVar[DaskMonotask | None] = ContextVar("penstock_executing", default=None)
