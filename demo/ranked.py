"""A job that is registered with Penstock. Apart from :mod:`demo.gates`: other executors need not load its imports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from demo.gates import SlotGate, StageLeft
from penstock.client import AgentClient, Job
from penstock.model import KindAmounts
from penstock.model.resources import ResourceKind
from penstock.model.work import StageProgress


class RankedGate(SlotGate):
    """Its container has the job's rank, which orders the processors; disks and the network are granted."""

    def __init__(self, slots: int, agent: AgentClient, job: Job) -> None:
        super().__init__(slots)
        self._agent = agent
        self._job = job

    @classmethod
    async def open(cls, socket: str, name: str, slots: int) -> RankedGate:
        """Register the job."""
        agent = await AgentClient.connect(Path(socket), client=f"demo {name}")
        return cls(slots, agent, await agent.register_job(name))

    @asynccontextmanager
    async def monotask(self, kind: str, input_bytes: int, stage: str) -> AsyncIterator[None]:
        """Wait for the agent's grant of a disk or of the network."""
        if kind == "cpu":
            yield
            return
        async with self._job.monotask(ResourceKind(kind), input_bytes, stage=stage):
            yield

    def progress(self, stages: Sequence[StageLeft]) -> None:
        """Report the progress, so that the master knows the remainder of a job that it has never seen.

        Each stage reads its input from a disk or the network, and computes on it.
        """
        names = [each.stage for each in stages]
        read = ("disk", "network")
        self._job.progress([
            StageProgress(
                stage=each.stage, tasks=each.tasks, done=each.done, after=names[:place],
                usage=KindAmounts(**{"cpu": float(each.left_bytes), read[place]: float(each.left_bytes)}),
            )
            for place, each in enumerate(stages)
        ])  # fmt: skip

    async def end(self) -> None:
        """End the job and leave."""
        await self._job.end()
        await self._agent.close()
