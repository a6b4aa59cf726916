"""`penstock status --cluster` and `penstock top --cluster` with a real master and agent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from penstock.client import AgentClient
from penstock.wire.errors import ErrorCode, RpcError
from tests.integration.conftest import Daemon, penstock


async def test_without_a_master_there_is_no_cluster_to_show(start_agent: Callable[..., Daemon]) -> None:
    async with await AgentClient.connect(start_agent().socket) as agent:
        with pytest.raises(RpcError, match="this host has no master") as refused:
            await agent.cluster_status()
    assert refused.value.code is ErrorCode.UNAVAILABLE


async def printed(agent: Daemon, *argv: str) -> str:
    done = await asyncio.to_thread(penstock, agent, *argv)
    assert done.returncode == 0
    return done.stdout


async def test_the_cluster_is_seen_through_the_host_s_agent(
    start_master: Callable[..., Daemon], start_agent: Callable[..., Daemon]
) -> None:
    daemon = start_agent(master=start_master().addresses["listen"])
    async with await AgentClient.connect(daemon.socket) as agent:
        job = await agent.register_job("seen", memory_bytes=1 << 20)
        await asyncio.wait_for(job.admitted(), 60)
        reserved = await agent.reserve("window(atom(<1MB,1core>, 1, 1, 1min, 1min), +1h, +3h)", "nightly")
        document = json.loads(await printed(daemon, "status", "--cluster", "--json"))
        assert document["nodes"]["test"]["state"] == "connected"
        assert document["jobs"][job.id]["name"] == "seen"
        assert (document["preemptions"], document["more"]["jobs_of_others"]) == ([], 0)
        text = await printed(daemon, "top", "--cluster")
        assert "1 of 1 node connected" in text
        for word in ("seen", "admitted", reserved.reservation, "nightly", "1 × 1 core,"):
            assert word in text
        await job.end()
