"""A gate, for the tests of gates; an asyncio client and its requests, for those of clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.client import AgentClient
from penstock.client.gate import Gate
from penstock.model.container import ContainerSpec
from penstock.model.resources import KindAmounts
from penstock.model.work import TaskRequest
from tests.fakes.agent import FakeAgent
from tests.fakes.agent_thread import AgentThread

TIMEOUT_S = 60.0
LONG_S = 600.0  # patience that no test lives to see
Make = Callable[..., Gate]


@pytest.fixture
def warned() -> list[str]:
    return []


@pytest.fixture
def make(tmp_path: Path, warned: list[str]) -> Iterator[Make]:
    made: list[Gate] = []

    def gate(**options: Any) -> Gate:
        made.append(Gate("test", **{"socket": tmp_path / "agent.sock", "warn": warned.append, **options}))
        return made[-1]

    yield gate
    for each in made:
        each.close()


@pytest.fixture
def gate(agent: AgentThread, make: Make) -> Gate:
    made = make(patience_s=LONG_S)
    assert made.wait_connected(TIMEOUT_S)
    return made


def in_thread(work: Callable[[], Any]) -> Callable[[], Any]:
    """Start it; the result waits for it."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    return lambda: future.result(TIMEOUT_S)


@pytest.fixture
async def client(fake: FakeAgent) -> AsyncIterator[AgentClient]:
    async with await AgentClient.connect(fake.socket, "test") as connected:
        yield connected


def request_of(task: str, *argv: str) -> TaskRequest:
    command = ContainerSpec(argv=argv) if argv else None
    return TaskRequest(task=task, usage=KindAmounts(cpu=1.0), command=command)
