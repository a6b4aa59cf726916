"""An agent that the test steers: in the test's own event loop, or in a thread beside blocking code."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.fakes.agent import FakeAgent
from tests.fakes.agent_thread import AgentThread


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeAgent]:
    agent = FakeAgent(tmp_path)
    await agent.start()
    yield agent
    await agent.stop()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentThread]:
    with AgentThread(tmp_path) as running:
        yield running
