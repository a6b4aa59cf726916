"""The client library against the real agent, which is killed and started again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.client import AgentClient
from penstock.client.blocking import BlockingAgent
from penstock.model.container import ContainerSpec, EndedBy

Start = Callable[..., Any]


def spec(*argv: str, **more: Any) -> ContainerSpec:
    return ContainerSpec(argv=argv, cwd="/", **more)


@pytest.fixture(scope="module")
def socket(start_shared_agent: Start) -> Path:
    """That of an agent for all tests that harm it in nothing."""
    return Path(start_shared_agent().socket)


async def test_everything_survives_a_killed_agent(start_agent: Start, tmp_path: Path) -> None:
    daemon = await asyncio.to_thread(start_agent, cores=1)
    async with await AgentClient.connect(daemon.socket, "test") as agent:
        job = await agent.register_job("survivor")
        before = job.id
        granted, queued = job.submit("cpu", 2), job.submit("cpu", 1)  # the larger one first
        await granted.granted
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        container = await agent.launch(spec("sh", "-c", f"echo before; cat {fifo}; exit 3"))
        daemon.kill()
        await asyncio.to_thread(start_agent, cores=1)
        status = await asyncio.wait_for(agent.status(), 30)
        assert [(one["container"], one["state"]) for one in status["containers"]] == [(container.id, "running")]
        assert job.id == before
        assert not queued.granted.done()
        granted.complete()
        await asyncio.wait_for(queued.granted, 30)
        queued.complete()
        await asyncio.to_thread(fifo.write_text, "after\n")
        ended = await asyncio.wait_for(container.wait(), 30)
        assert (ended.by, ended.exit_status) == (EndedBy.EXIT, 3)
        assert await container.output() == b"before\nafter\n"


def test_the_blocking_client(socket: Path) -> None:
    with BlockingAgent.connect(socket, "threads") as agent:
        job = agent.register_job("blocking")
        job.admitted()
        with job.monotask("disk", 100):
            assert agent.status()["kinds"]["disk"]["running"] == 1
        with pytest.raises(ZeroDivisionError), job.monotask("disk", 100):
            raise ZeroDivisionError
        container = agent.launch(spec("echo", "hello"))
        assert container.wait().ok
        assert container.output() == b"hello\n"
        assert agent.attach(container.id).wait().ok
        [entry] = agent.status()["jobs"]
        assert (entry["done"], entry["failed"]) == (1, 1)
        job.end()


async def test_every_key_of_the_status_is_documented(socket: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
    documented = page.partition("\n## The status document\n")[2].partition("\n## ")[0]
    async with await AgentClient.connect(socket, "test") as agent:
        job = await agent.register_job("j")
        container = await agent.launch(spec("true"))
        await container.wait()
        status = await agent.status()
        await job.end()
    parts = [status, *status["kinds"].values(), *status["jobs"], *status["containers"], *status["enforcement"].values()]
    parts += [status[key] for key in ("cores", "memory", "host", "master")]
    for key in {key for part in parts for key in part}:
        assert f"`{key}`" in documented, key
