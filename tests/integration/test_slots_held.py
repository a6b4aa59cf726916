"""A real agent and two users: one never gives a slot back, and the other gets it, also after the agent was killed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.integration.conftest import Daemon, agents_in
from tests.integration.security_callers import OWNER, STRANGER, callers, needs_root, open_directory

Start = Callable[..., Any]
Connect = Callable[..., Awaitable[Any]]


@pytest.fixture
def agent() -> Iterator[Daemon]:
    with open_directory() as here, agents_in(here) as start:
        yield start(cores=1, slot_held_max_s="1s", job_wait_max_s="500ms")


@needs_root
async def test_a_slot_that_is_not_given_back_goes_to_the_other_user(agent: Daemon) -> None:
    async with callers(agent.socket) as known:
        greedy, modest = await known.call_as(OWNER), await known.call_as(STRANGER)
        jobs = [(await client.call("register_job", name="j"))["job"] for client in (greedy, modest)]
        one = {"id": 1, "kind": "cpu", "input_bytes": 1}
        await greedy.call("submit", job=jobs[0], monotasks=[one])
        await modest.call("submit", job=jobs[1], monotasks=[one])
        assert await modest.recorder.wait_for("grant")
        (told,) = await greedy.recorder.wait_for("slot_taken_back")
        assert (told["job"], told["id"]) == (jobs[0], 1) and jobs[1] in told["why"]
        await greedy.call("complete", job=jobs[0], monotasks=[{"id": 1}])
        status = await asyncio.to_thread(agent.status)
        assert [status["kinds"]["cpu"][key] for key in ("running", "overdue", "taken_back")] == [1, 0, 1]
        assert any(event["what"] == "slot taken back" for event in status["events"])


async def _waits_s(agent: Any, at_least_s: float) -> float:
    async with asyncio.timeout(30):
        while True:
            head = (await asyncio.to_thread(agent.status))["kinds"]["cpu"]["head"]
            if head is not None and head["waits_s"] >= at_least_s:
                return float(head["waits_s"])
            await asyncio.sleep(0.1)


async def test_waiting_outlives_an_agent_that_is_killed(start_agent: Start, connect: Connect) -> None:
    agent = start_agent(cores=1, job_wait_max_s="1s", slot_held_max_s=0)
    one = {"id": 1, "kind": "cpu", "input_bytes": 1}
    client = await connect(agent)
    jobs = [(await client.call("register_job", name="j"))["job"] for _ in range(2)]
    for job in jobs:
        await client.call("submit", job=job, monotasks=[one])
    waited_s = await _waits_s(agent, 2.0)  # it is in the journal after the tenth part of job_wait_max_s
    agent.kill()
    agent = start_agent(cores=1, job_wait_max_s="1s", slot_held_max_s=0)
    client = await connect(agent)
    for job, running in zip(jobs, (True, False), strict=True):
        await client.call("register_job", name="j", job=job)
        await client.call("submit", job=job, monotasks=[one | {"running": running}])
    head = (await asyncio.to_thread(agent.status))["kinds"]["cpu"]["head"]
    assert head["job"] == jobs[1] and head["waits_s"] >= waited_s
