"""The gate that asks Penstock. Apart from :mod:`demo.gates`: the other executors need not load what it does not use."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from demo.gates import Ready
from penstock.client import AgentClient, Job
from penstock.model.resources import KindAmounts, ResourceKind
from penstock.model.work import TaskRequest


class PenstockGate:
    """A task waits for the master to place it, and each of its monotasks for the agent's grant."""

    def __init__(self, agent: AgentClient, job: Job) -> None:
        self._agent = agent
        self._job = job

    @classmethod
    async def open(cls, socket: str, name: str, memory_bytes: int) -> PenstockGate:
        """Register the job and wait until the master admits it."""
        agent = await AgentClient.connect(Path(socket), client=f"demo {name}")
        job = await agent.register_job(name, memory_bytes=memory_bytes)
        await job.admitted()
        return cls(agent, job)

    async def ready(self, stage: str, tasks: Sequence[Ready]) -> None:
        """Ask the master to place them."""
        requests = [
            TaskRequest(
                task=task.name, usage=KindAmounts(task.cpu, task.disk, task.network), memory_bytes=task.memory_bytes
            )
            for task in tasks
        ]
        await self._job.place(stage, requests)

    async def begin(self, task: str) -> None:
        """Wait for the placement; on one host there is only one answer to the question where."""
        await self._job.placed(task)

    def monotask(self, kind: str, input_bytes: int, stage: str, task: str) -> AbstractAsyncContextManager[object]:
        """Wait for the agent's grant."""
        return self._job.monotask(ResourceKind(kind), input_bytes, stage=stage, task=task)

    async def done(self, task: str) -> None:
        """The node gets the task's memory back."""
        await self._job.tasks_done([task])

    async def end(self) -> None:
        """End the job and leave."""
        await self._job.end()
        await self._agent.close()
