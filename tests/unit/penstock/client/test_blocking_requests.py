"""The same requests without an event loop and with one: the agent that answers is the same."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.client import AgentClient
from penstock.client.blocking_requests import asked
from penstock.client.requests import Requests
from penstock.wire.errors import RpcError
from tests.fakes.agent_thread import AgentThread

Ask = Callable[[AgentThread, Callable[[Requests], Coroutine[Any, Any, Any]]], Any]


def ask_blocking(agent: AgentThread, work: Callable[[Requests], Coroutine[Any, Any, Any]]) -> Any:
    return asked(agent.socket, "test", work)


def ask_in_a_loop(agent: AgentThread, work: Callable[[Requests], Coroutine[Any, Any, Any]]) -> Any:
    async def connected() -> Any:
        async with await AgentClient.connect(agent.socket, "test") as client:
            return await work(client)

    return asyncio.run(connected())


@pytest.mark.parametrize("ask", [ask_blocking, ask_in_a_loop])
def test_requests_follow_each_other_in_one_connection(agent: AgentThread, ask: Ask) -> None:
    async def two(requests: Requests) -> list[dict[str, Any]]:
        first = await requests.status()
        return [first, await requests.status()]

    assert [found["node"] for found in ask(agent, two)] == ["fake", "fake"]
    assert len(agent.agent.called("hello")) == 1


@pytest.mark.parametrize("ask", [ask_blocking, ask_in_a_loop])
def test_a_refusal_of_the_agent_is_its_error(agent: AgentThread, ask: Ask) -> None:
    with pytest.raises(RpcError, match="reserve"):
        ask(agent, lambda requests: requests.reserve("atom(<1core>, 1, 1, 1)"))


def test_an_agent_that_is_restarted_between_two_requests_is_waited_for(agent: AgentThread) -> None:
    async def over_a_restart(requests: Requests) -> str:
        agent.stop()
        starting = threading.Timer(0.1, agent.start)
        starting.start()
        node: str = (await requests.status())["node"]
        starting.join(60)
        return node

    assert asked(agent.socket, "test", over_a_restart) == "fake"


def test_a_method_that_needs_an_event_loop_is_a_mistake_in_the_program(agent: AgentThread) -> None:
    async def suspends(_: Requests) -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="use an AgentClient"):
        asked(agent.socket, "test", suspends)


def test_a_command_of_one_request_needs_no_event_loop(agent: AgentThread) -> None:
    code = "import sys; from penstock.cli.main import main; print(main(sys.argv[1:]), *sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, "status", "--json"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PENSTOCK_SOCKET": str(agent.socket)},
        timeout=60,
    )
    status, *modules = done.stderr.split()
    assert status == "0" and '"node": "fake"' in done.stdout
    assert not {"asyncio", "logging", "ssl", "rich", "penstock.client.agent"} & set(modules)
