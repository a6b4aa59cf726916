"""The description of a monotask that a Dask worker is about to start."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

from penstock.model.resources import ResourceKind


@dataclass(slots=True, eq=False)
class DaskMonotask:
    """One Dask task before its grant. ``kind`` None: annotated as ungated."""

    kind: ResourceKind | None = ResourceKind.CPU
    input_bytes: int = 0
    stage: str = ""
    learn: Callable[[int], None] | None = field(default=None, repr=False)
    """Is called with the number of bytes that the task's thread read."""
    long_running: Callable[[], None] | None = field(default=None, repr=False)
    """Gives the slot back when the task has left its worker's pool; set once it is submitted there."""
    withdraw: Callable[[], bool] | None = field(default=None, repr=False)
    """Withdraws it while it is not granted; returns False if it is too late."""
    withdrawn: bool = False
    """Dask cancelled it before it was granted."""


#: The task that the current context executes, for the pool: Dask's executor interface does not pass it.
EXECUTING: ContextVar[DaskMonotask | None] = ContextVar("penstock_executing", default=None)
