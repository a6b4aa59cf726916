"""A promise is kept: best-effort work leaves in time, the job starts, and a killed master's successor knows of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.client import AgentClient, Job
from penstock.model import ContainerSpec, EndedBy, KindAmounts, TaskRequest
from penstock.wire.errors import ErrorCode, RpcError
from penstock.wire.reservation_api import Reserved
from tests.integration.conftest import MasterProcess, agents

Start = Callable[..., Any]


def command(name: str, *argv: str, cores: float) -> TaskRequest:
    spec = ContainerSpec(argv=argv, cwd="/", cpu_cores=cores)
    return TaskRequest(task=name, usage=KindAmounts(cpu=1e6), memory_bytes=10_000_000, command=spec)


async def reservations(client: AgentClient) -> list[Reserved]:
    """Return the reservations once the agent is linked to the master again, which no event marks."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await client.reservations()
            except RpcError as error:
                assert error.code is ErrorCode.UNAVAILABLE
                await asyncio.sleep(0.05)


async def test_a_promised_job_starts_in_its_time_though_the_master_was_killed(
    start_agent: Start, master: MasterProcess, tmp_path: Path
) -> None:
    [agent] = await agents(start_agent, master, tmp_path, "alpha", cores=2)
    async with await AgentClient.connect(agent.socket, "test") as client:
        best = await client.register_job("best-effort")
        await best.place("s", [command(f"b{i}", "sleep", "600", cores=1.0) for i in range(2)])
        await asyncio.wait_for(asyncio.gather(best.placed("b0"), best.placed("b1")), 30)
        made = await client.reserve("window(atom(<1MB,2core>,1,1,10s,10),+6s,+16s)", "test")
        [piece] = made.promised
        assert piece.finish - piece.start == 10
        prod = await client.register_job("production", reservation=made.reservation)
        await prod.place("s", [command("p", "sh", "-c", "date +%s.%N", cores=2.0)])
        master.kill()
        master.start()
        [kept] = await reservations(client)
        assert kept == made
        assert await asyncio.wait_for(prod.placed("p"), 60) == "alpha"
        assert (await asyncio.wait_for(prod.ended("p"), 60)).by is EndedBy.EXIT
        began = await output(client, prod, "p")
        assert float(began) < piece.finish, "in its time"
        containers = (await client.status())["containers"]
        ended = sorted(one["task"] for one in containers if one["job"] == best.id and one["state"] == "ended")
        assert ended == ["b0", "b1"], "they had to leave"
        await best.cancel_tasks(["b0", "b1"])
        for name in ("b0", "b1"):
            assert (await asyncio.wait_for(best.ended(name), 60)).by is EndedBy.CANCELLED, "it waited again, or went on"


async def output(client: AgentClient, job: Job, task: str) -> str:
    status = await client.status()
    [container] = [one["container"] for one in status["containers"] if (one["job"], one["task"]) == (job.id, task)]
    attached = await client.attach(container)
    return (await attached.output("stdout")).decode()


async def test_a_refusal_comes_at_once_with_its_reason(
    start_agent: Start, master: MasterProcess, tmp_path: Path
) -> None:
    [agent] = await agents(start_agent, master, tmp_path, "alpha", cores=2)
    async with await AgentClient.connect(agent.socket, "test") as client:
        assert await reservations(client) == []
        for rdl, code, said in (
            ("window(atom(<1core>,3,3,5s,15),+0s,+20s)", ErrorCode.REFUSED, "the cluster has 2"),
            ("window(atom(<1core>,3,3,5s,", ErrorCode.BAD_REQUEST, "expected"),
            ({"atom": ["nobody", 1, 1, 1, 1]}, ErrorCode.BAD_REQUEST, "nobody"),
        ):
            with pytest.raises(RpcError) as error:
                await client.reserve(rdl)
            assert error.value.code is code
            assert said in str(error.value)
        with pytest.raises(RpcError, match="no reservation 'r-0'"):
            await client.register_job("j", reservation="r-0")
        with pytest.raises(RpcError, match="no reservation"):
            await client.delete_reservation("r-0")
        made = await client.reserve("atom(<1core>,1,1,5s,5)")
        assert await client.delete_reservation(made.reservation) == []
