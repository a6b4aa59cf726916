"""Master and agents as processes: a job of commands over two nodes, and the survivors when one of them is killed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.client import AgentClient
from penstock.model import EndedBy
from tests.integration.conftest import MasterProcess, agents, command

Start = Callable[..., Any]


async def test_commands_of_a_job_run_on_both_nodes(start_agent: Start, master: MasterProcess, tmp_path: Path) -> None:
    first, _ = await agents(start_agent, master, tmp_path, "alpha", "beta")
    async with await AgentClient.connect(first.socket, "test") as client:
        job = await client.register_job("spread", memory_bytes=100_000_000)
        await asyncio.wait_for(job.admitted(), 30)
        tasks = [command(f"t{i}", "true", nodes=("alpha" if i % 2 else "beta",)) for i in range(6)]
        await job.place("s", [*tasks, command("fails", "sh", "-c", "exit 7")])
        for i in range(6):
            assert await asyncio.wait_for(job.placed(f"t{i}"), 30) == ("alpha" if i % 2 else "beta")
            ended = await asyncio.wait_for(job.ended(f"t{i}"), 30)
            assert (ended.by, ended.exit_status) == (EndedBy.EXIT, 0)
        assert (await asyncio.wait_for(job.ended("fails"), 30)).exit_status == 7
        await job.end()
    status = master.status()
    assert status["decisions"]["assigned"] == 7
    assert status["tasks"]["ended"] == {"exit": 7}
    assert {node["state"] for node in status["nodes"].values()} == {"connected"}


async def test_a_killed_master_loses_nothing(start_agent: Start, master: MasterProcess, tmp_path: Path) -> None:
    first, _ = await agents(start_agent, master, tmp_path, "alpha", "beta")
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    async with await AgentClient.connect(first.socket, "test") as client:
        job = await client.register_job("survivor", memory_bytes=100_000_000)
        await asyncio.wait_for(job.admitted(), 30)
        await job.place("s", [command("runs", "sh", "-c", f"cat {fifo}; exit 3", nodes=("beta",))])
        assert await asyncio.wait_for(job.placed("runs"), 30) == "beta"
        master.kill()
        await job.place("s", [command("asked-meanwhile", "true", nodes=("beta",))])
        master.start()
        assert (await asyncio.wait_for(job.ended("asked-meanwhile"), 60)).ok
        assert master.status()["jobs"][job.id]["placed"] == 1
        await asyncio.to_thread(fifo.write_text, "go")
        assert (await asyncio.wait_for(job.ended("runs"), 30)).exit_status == 3
        await job.end()
    assert master.status()["tasks"]["ended"] == {"exit": 2}


async def test_how_a_command_ended_outlives_its_agent_while_the_master_is_away(
    start_agent: Start, master: MasterProcess, tmp_path: Path
) -> None:
    first, second = await agents(start_agent, master, tmp_path, "alpha", "beta")
    fifo, ran = tmp_path / "go", tmp_path / "ran"
    os.mkfifo(fifo)
    async with await AgentClient.connect(first.socket, "test") as client:
        job = await client.register_job("once", memory_bytes=100_000_000)
        await asyncio.wait_for(job.admitted(), 30)
        script = f"echo once >>{ran}; cat {fifo}; exit 3"
        await job.place("s", [command("runs", "sh", "-c", script, nodes=("beta",))])
        assert await asyncio.wait_for(job.placed("runs"), 30) == "beta"
        async with await AgentClient.connect(second.socket, "test") as beside:
            (container,) = (await beside.status())["containers"]
            attached = await beside.attach(container["container"])
            master.kill()
            await asyncio.to_thread(fifo.write_text, "go")
            await asyncio.wait_for(attached.wait(), 30)
        second.kill()
        await agents(start_agent, master, tmp_path, "beta")
        master.start()
        assert (await asyncio.wait_for(job.ended("runs"), 60)).exit_status == 3
        await job.end()
    assert ran.read_text() == "once\n"


@pytest.mark.parametrize("point", ["start cgroup made", "start launched"])
async def test_a_command_runs_once_though_its_agent_dies_while_it_starts_it(
    start_agent: Start, master: MasterProcess, tmp_path: Path, point: str
) -> None:
    """Before the launcher was asked the next agent starts it, afterwards it runs already."""
    (first,) = await agents(start_agent, master, tmp_path, "alpha")
    beta = {"node": "beta", "master": master.listen, "runtime_dir": tmp_path / "b", "state_dir": tmp_path / "b-state"}
    dying = await asyncio.to_thread(start_agent, environment={"PENSTOCK_DIE_AT": point}, **beta)
    ran = tmp_path / "ran"
    async with await AgentClient.connect(first.socket, "test") as client:
        job = await client.register_job("once", memory_bytes=100_000_000)
        await asyncio.wait_for(job.admitted(), 30)
        await job.place("s", [command("runs", "sh", "-c", f"echo once >>{ran}", nodes=("beta",))])
        assert await asyncio.to_thread(dying.process.wait, 60) == -9
        await asyncio.to_thread(start_agent, **beta)
        assert (await asyncio.wait_for(job.ended("runs"), 60)).ok
        await job.end()
    assert ran.read_text() == "once\n"
