"""The permission to work. All executors run the very same jobs, in task slots of the job's own (:class:`SlotGate`).

A task takes a slot and keeps it while it reads, computes and writes; the reads of one task overlap with the computing
of another, as in frameworks that pipeline inside a container. Under plain Linux nothing else limits a job; on a static
split its container has a share of the cores; under Penstock its processes have the rank of its job, and its monotasks
of disk and network ask the agent (:class:`demo.ranked.RankedGate`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple


class StageLeft(NamedTuple):
    """A stage: its tasks, the finished ones, and the input bytes of the rest (0 while that is unknown)."""

    stage: str
    tasks: int
    done: int = 0
    left_bytes: int = 0


class SlotGate:
    """See the module's docstring."""

    def __init__(self, slots: int) -> None:
        self._slots = asyncio.Semaphore(slots)

    async def begin(self) -> None:
        """Take a task slot."""
        await self._slots.acquire()

    @asynccontextmanager
    async def monotask(self, kind: str, input_bytes: int, stage: str) -> AsyncIterator[None]:
        """At once: the task has its slot."""
        yield

    def done(self) -> None:
        """Give the task slot back."""
        self._slots.release()

    def progress(self, stages: Sequence[StageLeft]) -> None:
        """Drop the progress of the job: no part asks for it."""

    async def end(self) -> None:
        """The job is over."""
