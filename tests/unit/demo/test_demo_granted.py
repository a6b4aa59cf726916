"""What the gate tells Penstock about a job's tasks and monotasks."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from demo.gates import Ready
from demo.granted import PenstockGate
from penstock.model import KindAmounts, ResourceKind, TaskRequest


class FakeJob:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    async def place(self, stage: str, tasks: list[TaskRequest]) -> None:
        self.calls.append(("place", stage, tasks))

    async def placed(self, task: str) -> str:
        self.calls.append(("placed", task))
        return "here"

    def monotask(
        self, kind: ResourceKind, input_bytes: int, stage: str = "", task: str = ""
    ) -> AbstractAsyncContextManager[None]:
        self.calls.append(("monotask", kind, input_bytes, stage, task))
        return nullcontext()

    async def tasks_done(self, tasks: list[str]) -> None:
        self.calls.append(("done", tasks))

    async def end(self) -> None:
        self.calls.append(("end",))


class FakeAgent:
    closed = False

    async def close(self) -> None:
        self.closed = True


async def test_everything_is_said_with_its_numbers() -> None:
    job, agent = FakeJob(), FakeAgent()
    gate = PenstockGate(agent, job)  # type: ignore[arg-type]
    await gate.ready("reduce", [Ready("reduce-0", 1, 2, 3, 4), Ready("reduce-1", 5, 6, 7, 8)])
    await gate.begin("reduce-0")
    async with gate.monotask("network", 3, "reduce", "reduce-0"):
        pass
    await gate.done("reduce-0")
    await gate.end()
    requests = [
        TaskRequest(task="reduce-0", usage=KindAmounts(cpu=1, disk=2, network=3), memory_bytes=4),
        TaskRequest(task="reduce-1", usage=KindAmounts(cpu=5, disk=6, network=7), memory_bytes=8),
    ]
    assert job.calls == [
        ("place", "reduce", requests),
        ("placed", "reduce-0"),
        ("monotask", ResourceKind.NETWORK, 3, "reduce", "reduce-0"),
        ("done", ["reduce-0"]),
        ("end",),
    ]
    assert agent.closed
