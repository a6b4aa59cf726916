"""The description of a monotask that a Dask worker is about to start."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

from penstock.model.resources import ResourceKind


class LongRunning(Protocol):
    """A monotask's way through the pool, as far as the monotask uses it (:class:`penstock.engines.dask.pool.Turn`)."""

    def long_running(self) -> None:
        """Give the slot back, as the task has left its worker's pool."""
        ...


@dataclass(slots=True, eq=False)
class DaskMonotask:
    """One Dask task before its grant. ``kind`` None: annotated as ungated."""

    kind: ResourceKind | None = ResourceKind.CPU
    input_bytes: int = 0
    stage: str = ""
    learn: Callable[[int], None] | None = field(default=None, repr=False)
    """Is called with the number of bytes that the task's thread read."""
    turn: LongRunning | None = field(default=None, repr=False)
    """Its way through the pool, once it is submitted there."""
    withdraw: Callable[[], bool] | None = field(default=None, repr=False)
    """Withdraws it while it is not granted; returns False if it is too late."""
    withdrawn: bool = False
    """Dask cancelled it before it was granted."""


#: The task that the current context executes, for the pool: Dask's executor interface does not pass it.
EXECUTING: ContextVar[DaskMonotask | None] = ContextVar("penstock_executing", default=None)
