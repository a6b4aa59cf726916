"""Who may work when: the only difference between the executors that run the very same jobs.

Plain Linux and static (:class:`SlotGate`): task slots of the job's own. A task takes a slot and keeps it while it
reads, computes and writes; the reads of one task overlap with the computing of another, as in frameworks that pipeline
inside a container. Under plain Linux nothing else limits a job; on a static split its container has a share of the
cores. Penstock (:class:`demo.granted.PenstockGate`): a task waits for the master to place it, and each of its monotasks
for the agent's grant.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple, Protocol


class Ready(NamedTuple):
    """A task that is ready: its estimated work in bytes per kind, and its memory (Ursa §4.2.1)."""

    name: str
    cpu: int
    disk: int
    network: int
    memory_bytes: int


class Gate(Protocol):
    """What a job asks before it works."""

    async def ready(self, stage: str, tasks: Sequence[Ready]) -> None:
        """All tasks of a stage that became ready together."""

    async def begin(self, task: str) -> None:
        """Wait until the task may start here."""

    def monotask(self, kind: str, input_bytes: int, stage: str, task: str) -> AbstractAsyncContextManager[object]:
        """Wait for the resource and hold it inside the ``async with``."""

    async def done(self, task: str) -> None:
        """The task is complete."""

    async def end(self) -> None:
        """The job is over."""


class SlotGate:
    """Plain Linux and static: see the module's docstring."""

    def __init__(self, slots: int) -> None:
        self._slots = asyncio.Semaphore(slots)

    async def ready(self, stage: str, tasks: Sequence[Ready]) -> None:
        """Nobody else has a say."""

    async def begin(self, task: str) -> None:
        """Take a task slot."""
        await self._slots.acquire()

    @asynccontextmanager
    async def monotask(self, kind: str, input_bytes: int, stage: str, task: str) -> AsyncIterator[None]:
        """At once: the task has its slot."""
        yield

    async def done(self, task: str) -> None:
        """Give the task slot back."""
        self._slots.release()

    async def end(self) -> None:
        """Nothing to give back."""
