"""Master and agents as processes: a job of commands over two nodes, and what survives when one of them is killed."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client import AgentClient
from penstock.model import ContainerSpec, EndedBy, KindAmounts, TaskRequest
from tests.integration.warm import Forked, run

Start = Callable[..., Any]


class MasterProcess:
    """``python -I -m master`` on a port of its own, which it keeps over restarts."""

    def __init__(self, directory: Path, *, node_timeout_s: float = 30.0) -> None:
        self._node_timeout_s = node_timeout_s
        self.listen = str(directory / "master.sock")
        self.directory = directory
        self.http = ""
        self.process: Forked | subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        ports = self.directory / "master.json"
        ports.unlink(missing_ok=True)
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        address = str(self.directory / "notify.sock")
        Path(address).unlink(missing_ok=True)
        with notify:
            notify.bind(address)
            notify.settimeout(60)
            store = self.directory / "master.db"
            timeout = f"node_timeout_s={self._node_timeout_s}"
            settings = (f"listen={self.listen}", "http=127.0.0.1:0", timeout, f"store={store}")
            options = [part for text in settings for part in ("--set", text)]
            arguments = ["--port-file", str(ports), *options]
            self.process = run("master", arguments, {"NOTIFY_SOCKET": address}, self.directory / "master.log")
            assert b"READY=1" in notify.recv(4096)
        addresses = json.loads(ports.read_text())
        assert addresses["listen"] == self.listen
        self.http = addresses["http"]

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(30)

    def status(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{self.http}/status", timeout=10) as answer:
            return dict(json.loads(answer.read()))


@pytest.fixture
def master(tmp_path: Path) -> Iterator[MasterProcess]:
    running = MasterProcess(tmp_path)
    running.start()
    yield running
    assert running.stop() == 0, (tmp_path / "master.log").read_text()


def command(name: str, *argv: str, **more: Any) -> TaskRequest:
    spec = ContainerSpec(argv=argv, cwd="/")
    return TaskRequest(task=name, usage=KindAmounts(cpu=1e6), memory_bytes=10_000_000, command=spec, **more)


async def agents(
    start_agent: Start, master: MasterProcess, tmp_path: Path, *names: str, **settings: object
) -> list[Any]:
    started = []
    for name in names:
        more = {"runtime_dir": tmp_path / name / "run", "state_dir": tmp_path / name / "state"}
        (tmp_path / name).mkdir()
        started.append(await asyncio.to_thread(start_agent, node=name, master=master.listen, **more, **settings))
    return started


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
        await asyncio.to_thread(
            start_agent, node="beta", master=master.listen, runtime_dir=tmp_path / "beta" / "run",
            state_dir=tmp_path / "beta" / "state",
        )  # fmt: skip
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
