"""An agent that commands find by the environment, and a command beside it in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.cli.main import main
from tests.fakes.agent import FakeAgent
from tests.fakes.agent_thread import AgentThread

Penstock = Callable[..., Awaitable[tuple[int, str, str]]]
Fails = Callable[..., str]


@pytest.fixture
def fake(fake: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> FakeAgent:
    monkeypatch.setenv("PENSTOCK_SOCKET", str(fake.socket))
    return fake


@pytest.fixture
def agent(agent: AgentThread, monkeypatch: pytest.MonkeyPatch) -> AgentThread:
    monkeypatch.setenv("PENSTOCK_SOCKET", str(agent.socket))
    return agent


@pytest.fixture
def penstock(capsys: pytest.CaptureFixture[str]) -> Penstock:
    """Run a command in a thread; its exit status, output and errors."""

    async def run(*argv: str) -> tuple[int, str, str]:
        status = await asyncio.wait_for(asyncio.to_thread(main, list(argv)), 60)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def fails(capsys: pytest.CaptureFixture[str]) -> Fails:
    """Run a command that ends with a status and one line with the reason; return the line."""

    def run(status: int, *argv: object) -> str:
        assert main([str(each) for each in argv]) == status
        captured = capsys.readouterr()
        assert (captured.out, captured.err.count("\n")) == ("", 1), captured.err
        return captured.err.strip()

    return run
