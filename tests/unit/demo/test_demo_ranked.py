"""A job's requests to the agent under Penstock, and those that it does not make."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from demo.ranked import RankedGate
from penstock.model import ResourceKind


class FakeJob:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def monotask(self, kind: ResourceKind, input_bytes: int, stage: str = "") -> AbstractAsyncContextManager[None]:
        self.calls.append(("monotask", kind, input_bytes, stage))
        return nullcontext()

    async def end(self) -> None:
        self.calls.append(("end",))


class FakeAgent:
    closed = False

    async def close(self) -> None:
        self.closed = True


async def test_disk_and_network_are_asked_for_and_the_processor_is_not() -> None:
    job, agent = FakeJob(), FakeAgent()
    gate = RankedGate(1, agent, job)  # type: ignore[arg-type]
    await gate.begin()
    for kind in ("disk", "cpu", "network"):
        async with gate.monotask(kind, 3, "reduce"):
            pass
    gate.done()
    await gate.end()
    assert job.calls == [
        ("monotask", ResourceKind.DISK, 3, "reduce"), ("monotask", ResourceKind.NETWORK, 3, "reduce"), ("end",),
    ]  # fmt: skip
    assert agent.closed
