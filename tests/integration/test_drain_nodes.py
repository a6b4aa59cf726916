"""A real master and two agents: nodes are drained, restarted and undrained, and no work is lost."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client import AgentClient
from penstock.model import ContainerSpec, KindAmounts, TaskRequest
from tests.integration.conftest import Daemon, MasterProcess, agents, until
from tests.integration.conftest import penstock as command_on

Start = Callable[..., Any]
LIMIT_S = 120


async def penstock(daemon: Daemon, *arguments: str) -> tuple[int, str, str]:
    """The command on a daemon's host: exit status, standard output and error."""
    done = await asyncio.to_thread(command_on, daemon, *arguments)
    return done.returncode, done.stdout, done.stderr


class Gate:
    """A command that notes where it begins, and then waits until the test lets all of its copies go."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.begun, self.end = directory / f"{name}.begun", directory / f"{name}.end"
        os.mkfifo(self.begun)
        os.mkfifo(self.end)
        self._reader = os.open(self.begun, os.O_RDWR | os.O_NONBLOCK)
        self._writer = os.open(self.end, os.O_RDWR)

    def task(self) -> TaskRequest:
        script = f"echo begun > {self.begun}; read line < {self.end}; exit 5"
        command = ContainerSpec(argv=("sh", "-c", script), cwd="/")
        return TaskRequest(task=self.name, usage=KindAmounts(cpu=1e6), memory_bytes=10_000_000, command=command)

    async def begins(self) -> None:
        """Wait until a copy of it has begun."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._reader, readable.set)
        try:
            async with asyncio.timeout(LIMIT_S):
                await readable.wait()
        finally:
            loop.remove_reader(self._reader)
        assert os.read(self._reader, 6) == b"begun\n"

    def go(self) -> None:
        os.write(self._writer, b"go\n")

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


@pytest.fixture
def gates(tmp_path: Path) -> Iterator[tuple[Gate, Gate]]:
    made = Gate(tmp_path, "regular"), Gate(tmp_path, "slack")
    yield made
    for gate in made:
        gate.close()


async def own_work_is_waited_for_and_named(alpha: Daemon) -> None:
    """The own work of a node's users by its agent goes on; a drain concerns the cluster's work."""
    async with await AgentClient.connect(alpha.socket, "test") as client:
        own = await client.launch(ContainerSpec(argv=("sleep", "1000"), name="mine"))
        status, _, err = await penstock(alpha, "drain", "--timeout", "200ms", "--stop")
        assert status == 3, err
        assert f"alpha still runs container {own.id} of" in err
        assert "(mine)" in err
        ended = await (await client.launch(ContainerSpec(argv=("true",)))).wait()
        assert ended.ok, "more of it may begin"
        await own.kill()
        await asyncio.wait_for(own.wait(), LIMIT_S)


async def test_nodes_are_emptied_one_after_the_other(
    start_agent: Start, master: MasterProcess, tmp_path: Path, gates: tuple[Gate, Gate]
) -> None:
    regular, slack = gates
    alpha, beta = await agents(start_agent, master, tmp_path, "alpha", "beta")
    await own_work_is_waited_for_and_named(alpha)
    assert await penstock(alpha, "drain") == (0, "alpha: drained\n", "")
    assert b'penstock_master_nodes{state="drained"} 1.0' in await asyncio.to_thread(master.running.get, "/metrics")
    status, _, err = await penstock(alpha, "drain", "nowhere")
    assert (status, err) == (4, "penstock drain: no node 'nowhere' in this cluster (its nodes: alpha, beta)\n")
    async with await AgentClient.connect(alpha.socket, "test") as client:
        job = await client.register_job("moves", memory_bytes=100_000_000)
        await asyncio.wait_for(job.admitted(), LIMIT_S)
        await job.place("s", [regular.task()])
        await job.place("t", [slack.task()], opportunistic="only")
        await regular.begins()
        await slack.begins()
        assert await job.placed("regular") == await job.placed("slack") == "beta", "alpha takes no work"

        assert (await penstock(alpha, "undrain"))[:2] == (0, "alpha: accepts work\n")
        status, out, err = await penstock(alpha, "drain", "beta", "--timeout", "200ms", "--json")
        await slack.begins()  # elsewhere, at once
        assert status == 3, err
        assert json.loads(out)["nodes"][0]["state"] == "draining"
        assert f"beta still runs command {job.id}/regular of" in err

        await asyncio.to_thread(beta.stop)
        await asyncio.to_thread(master.kill)
        await asyncio.to_thread(master.start)
        (beta,) = await agents(start_agent, master, tmp_path, "beta")
        assert beta.status()["drain"]["by"] == alpha.status()["containers"][0]["user"]
        status, _, err = await penstock(beta, "drain", "--timeout", "200ms")
        assert status == 3, err
        assert "/regular of" in err, "it has gone on over both restarts"

        assert await penstock(beta, "drain", "--timeout", "0s", "--stop") == (0, "beta: drained\n", "")
        await regular.begins()  # again, on alpha
        nodes = master.status()["nodes"]
        assert (nodes["beta"]["state"], nodes["beta"]["tasks"]) == ("drained", 0)
        assert (nodes["alpha"]["state"], nodes["alpha"]["tasks"]) == ("connected", 2)
        regular.go()
        slack.go()
        for name in ("regular", "slack"):
            assert (await asyncio.wait_for(job.ended(name), LIMIT_S)).exit_status == 5
        assert master.status()["tasks"]["ended"] == {"exit": 2}, "each once"
        await job.end()


async def test_the_drain_of_an_absent_node_and_the_ends_of_jobs_outlive_the_master(
    start_agent: Start, master: MasterProcess, tmp_path: Path
) -> None:
    alpha, beta = await agents(start_agent, master, tmp_path, "alpha", "beta")
    async with await AgentClient.connect(alpha.socket, "test") as client:
        job = await client.register_job("over")
        await job.place("s", [TaskRequest(task="t", usage=KindAmounts(cpu=1.0), command=ContainerSpec(argv=("true",)))])
        assert (await asyncio.wait_for(job.ended("t"), LIMIT_S)).ok
        await job.end()
    assert (await penstock(alpha, "jobs", job.id, "--wait"))[0] == 0
    await asyncio.to_thread(beta.stop)
    status, out, err = await penstock(alpha, "drain", "beta", "--no-wait")
    assert (status, err) == (0, "")
    assert out == "beta: away\n"
    await asyncio.to_thread(master.kill)
    await asyncio.to_thread(master.start)
    async with asyncio.timeout(LIMIT_S):
        while (await penstock(alpha, "drain", "beta", "--no-wait"))[0] != 0:  # until alpha has found it again
            await asyncio.to_thread(time.sleep, 0.1)
    status, out, err = await penstock(alpha, "jobs", job.id, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)[0]["outcome"] == "succeeded"
    (beta,) = await agents(start_agent, master, tmp_path, "beta")
    assert await penstock(alpha, "drain", "beta") == (0, "beta: drained\n", "")
    assert beta.status()["drain"]["state"] == "drained"


async def test_the_work_of_a_drained_node_is_not_run_again_because_its_agent_is_away(
    start_agent: Start, tmp_path: Path, gates: tuple[Gate, Gate]
) -> None:
    """As in an upgrade.

    A node that is not drained is lost by then, with the jobs that were submitted there. Its agent, asked to stop, ends
    no job: its clients connect to the next one.
    """
    gate, _ = gates
    master = MasterProcess(tmp_path, node_timeout_s=5.0)  # no heartbeat of a busy host is later
    await asyncio.to_thread(master.start)
    alpha, _, gamma = await agents(start_agent, master, tmp_path, "alpha", "beta", "gamma")
    assert await penstock(alpha, "drain", "alpha", "gamma") == (0, "alpha: drained\ngamma: drained\n", "")
    assert (await penstock(alpha, "undrain", "gamma"))[0] == 0
    async with await AgentClient.connect(alpha.socket, "test") as client:
        job = await client.register_job("goes-on", memory_bytes=100_000_000)
        await asyncio.wait_for(job.admitted(), LIMIT_S)
        await penstock(gamma, "drain", "gamma")  # only beta takes work
        await job.place("s", [gate.task()])
        await gate.begins()
        assert (await penstock(gamma, "undrain", "gamma"))[0] == 0
        for agent in (alpha, gamma):
            await asyncio.to_thread(agent.stop)
        await asyncio.to_thread(until, lambda: "gamma" not in master.status()["nodes"])
        gate.go()
        await asyncio.to_thread(until, lambda: master.status()["tasks"]["ended"])
        await agents(start_agent, master, tmp_path, "alpha")
        assert (await asyncio.wait_for(job.ended(gate.name), LIMIT_S)).exit_status == 5
        status = await asyncio.to_thread(master.status)
        assert (status["decisions"]["assigned"], status["tasks"]["ended"]) == (1, {"exit": 1})
        await job.end()
    assert await asyncio.to_thread(master.stop) == 0
