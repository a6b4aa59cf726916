"""The client library against the real agent, which is killed and started again."""

from __future__ import annotations

import asyncio
import os
import signal
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


async def test_slots_bound_what_runs(socket: Path) -> None:
    async with await AgentClient.connect(socket, "test") as agent:
        job = await agent.register_job("bounded")
        await job.admitted()
        running, most = 0, 0

        async def one(size: int) -> None:
            nonlocal running, most
            async with job.monotask("cpu", size):
                running += 1
                most = max(most, running)
                await asyncio.sleep(0)
                running -= 1

        await asyncio.gather(*(one(size) for size in range(200)))
        assert most == agent.welcome.capacity.cpu_slots
        status = await agent.status()
        assert [(entry["done"], entry["failed"]) for entry in status["jobs"]] == [(200, 0)]
        await job.end()
        assert (await agent.status())["jobs"] == []


async def test_larger_cpu_monotasks_of_a_stage_come_first(start_agent: Start) -> None:
    daemon = await asyncio.to_thread(start_agent, cores=1)
    async with await AgentClient.connect(daemon.socket, "test") as agent:
        job = await agent.register_job("ordered")
        order = []
        first = job.submit("cpu", 1)
        await first.granted
        waiting = {size: job.submit("cpu", size, stage="s") for size in (10, 30, 20)}
        first.complete()
        for _ in range(3):
            done, _ = await asyncio.wait([one.granted for one in waiting.values()], return_when="FIRST_COMPLETED")
            [size] = [size for size, one in waiting.items() if one.granted in done]
            order.append(size)
            waiting.pop(size).complete()
        assert order == [30, 20, 10]


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


async def test_a_client_that_goes_away_gives_its_slot_back(start_agent: Start) -> None:
    daemon = await asyncio.to_thread(start_agent, cores=1)
    leaving = await AgentClient.connect(daemon.socket, "leaving")
    job = await leaving.register_job("leaving")
    await job.submit("cpu", 1).granted
    async with await AgentClient.connect(daemon.socket, "staying") as staying:
        waiting = (await staying.register_job("staying")).submit("cpu", 1)
        await staying.status()
        assert not waiting.granted.done()
        await leaving.close()
        await asyncio.wait_for(waiting.granted, 30)


async def test_signals_kills_and_streams(socket: Path) -> None:
    read_end, write_end = os.pipe()
    async with await AgentClient.connect(socket, "test") as agent:
        container = await agent.launch(
            spec("sh", "-c", "echo ready; exec sleep 600"), stdio=(read_end, write_end, write_end)
        )
        os.close(write_end)
        assert await asyncio.to_thread(os.read, read_end, 100) == b"ready\n"
        await container.signal(signal.SIGTERM)
        ended = await asyncio.wait_for(container.wait(), 30)
        assert (ended.by, ended.exit_status) == (EndedBy.SIGNAL, 143)
        assert await asyncio.to_thread(os.read, read_end, 100) == b""
        os.close(read_end)
        other = await agent.launch(spec("sleep", "600"))
        await other.kill()
        ended = await asyncio.wait_for(other.wait(), 30)
        assert ended.by is EndedBy.CANCELLED
        assert "cancelled by" in ended.reason


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
