"""A real agent: a promised core makes no CPU slot while its container computes, and makes one while it is idle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agent.cgroup_root import choose_root

Start = Callable[..., Any]
Connect = Callable[..., Awaitable[Any]]


@pytest.mark.skipif(
    choose_root("x") is None, reason="elsewhere: without a cgroup the use of containers is not observed"
)
@pytest.mark.parametrize(("sample_interval_s", "granted"), [(60, False), (0.5, True)])
async def test_a_promised_core_is_a_slot_only_while_it_was_seen_idle(
    start_agent: Start, connect: Connect, sample_interval_s: float, granted: bool
) -> None:
    """Nothing is known of the container before two samples. The loan of a busy one is in test_core_promised_cores."""
    agent = start_agent(cores=1, sample_interval_s=sample_interval_s, job_wait_max_s="60s")
    client = await connect(agent)
    spec = {"argv": ["sleep", "60"], "cpu_cores": 1.0}
    container = (await client.call("launch", container=spec))["container"]
    job = (await client.call("register_job", name="j"))["job"]
    await client.call("submit", job=job, monotasks=[{"id": 1, "kind": "cpu", "input_bytes": 1}])
    if granted:
        await client.recorder.wait_for("grant")
    else:
        status = await asyncio.to_thread(agent.status)
        assert [status["kinds"]["cpu"][key] for key in ("slots", "withheld", "queued")] == [1, 1, 1]
    await client.call("kill", container=container)
    await client.recorder.wait_for("grant")
