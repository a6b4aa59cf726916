"""`penstock status --cluster` and `penstock top --cluster` with a real master and agent."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable

import pytest

from penstock.client import AgentClient
from penstock.wire.errors import ErrorCode, RpcError
from tests import warm_commands
from tests.integration.conftest import Daemon

COMMAND = (warm_commands.penstock(),)


async def test_without_a_master_there_is_no_cluster_to_show(start_agent: Callable[..., Daemon]) -> None:
    async with await AgentClient.connect(start_agent().socket) as agent:
        with pytest.raises(RpcError, match="this host has no master") as refused:
            await agent.cluster_status()
    assert refused.value.code is ErrorCode.UNAVAILABLE


async def printed(agent: Daemon, *argv: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, *argv, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PENSTOCK_SOCKET": str(agent.socket)}
    )
    out, _ = await asyncio.wait_for(process.communicate(), 100)
    assert process.returncode == 0
    return out.decode()


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
