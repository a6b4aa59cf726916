"""A real agent: a promised core makes no CPU slot while its container computes, and makes one while it is idle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agent.place import choose_root

Start = Callable[..., Any]
Connect = Callable[..., Awaitable[Any]]


@pytest.mark.skipif(choose_root("x") is None, reason="elsewhere: without a cgroup nobody sees what containers use")
@pytest.mark.parametrize(("script", "granted"), [("while :; do :; done", False), ("sleep 60", True)])
async def test_a_promised_core_is_a_slot_only_while_it_is_idle(
    start_agent: Start, connect: Connect, script: str, granted: bool
) -> None:
    agent = start_agent(cores=1, sample_interval_s=0.5, job_wait_max_s="60s")
    client = await connect(agent)
    spec = {"argv": ["sh", "-c", script], "cpu_cores": 1.0}
    container = (await client.call("launch", container=spec))["container"]
    job = (await client.call("register_job", name="j"))["job"]
    await client.call("submit", job=job, monotasks=[{"id": 1, "kind": "cpu", "input_bytes": 1}])
    try:
        async with asyncio.timeout(10 if granted else 3):
            await client.recorder.wait_for("grant")
    except TimeoutError:
        assert not granted
        status = await asyncio.to_thread(agent.status)
        assert [status["kinds"]["cpu"][key] for key in ("slots", "withheld", "queued")] == [1, 1, 1]
    else:
        assert granted
    await client.call("kill", container=container)
    async with asyncio.timeout(10):
        await client.recorder.wait_for("grant")
